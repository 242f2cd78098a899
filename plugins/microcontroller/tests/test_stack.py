"""The bound of the stack: along the deepest calls, and none where a compiler cannot tell."""

from __future__ import annotations

import shutil

import pytest

from inlay_microcontroller.boards import ARM, INSTALL
from inlay_microcontroller.stack import stack_of

pytestmark = pytest.mark.skipif(shutil.which(ARM) is None, reason=f"there is no {ARM}: {INSTALL}")
HEAD = """
#include <string.h>
__attribute__((noinline)) static void use(char *at, int bytes) { for (int i = 0; i < bytes; i++) ((volatile char *)at)[i] = 0; }
"""
LARGE = "__attribute__((noinline)) static void large(void) { char at[1000]; use(at, 1000); }\n"


def bound(text: str) -> int | None:
    return stack_of({"model.c": HEAD + text}, "model_run", "cortex-m4")


def test_calls_add_up_along_the_deepest() -> None:
    alone = bound(LARGE + "void model_run(void) { char at[100]; use(at, 100); }")
    both = bound(LARGE + "void model_run(void) { char at[100]; use(at, 100); large(); }")
    assert alone is not None and 100 <= alone < 200
    assert both is not None and 1100 <= both < 1200


def test_functions_of_libraries_have_room() -> None:
    copied = bound("void model_run(char *to, const char *from, unsigned size) { memcpy(to, from, size); }")
    divided = bound("double model_run(double a, double b) { return a / b + 1.0; }")
    assert copied is not None and divided is not None
    assert 64 <= copied < 100 and 64 <= divided < 100


@pytest.mark.parametrize(
    "text",
    [
        "void model_run(int depth) { char at[100]; use(at, 100); if (depth) model_run(depth - 1); use(at, 100); }",
        "void model_run(void (*called)(void)) { called(); use(0, 0); }",
        "void model_run(int bytes) { char at[bytes]; use(at, bytes); }",
        "void model_run(void) { neither C",
        "void other(void) {}",
    ],
    ids=["recursion", "pointers", "arrays of any size", "no C", "no function"],
)
def test_what_cannot_be_told_is_not(text: str) -> None:
    assert bound(text) is None
    assert bound(text) is None  # nor when it is asked again


def test_processors_without_a_compiler_have_no_bound() -> None:
    assert stack_of({"model.c": HEAD + "void model_run(void) {}"}, "model_run", "c99") is None
