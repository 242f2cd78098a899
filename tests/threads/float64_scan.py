"""Search kernels of narrower floats for float64, of every operator of the conformance suite's corpus.

    python -m tests.threads.float64_scan opencl:kind=gpu
    python -m tests.threads.float64_scan cuda:arch=host

Each operator is compiled in float32, float16 and bfloat16 with examples that cover the values of attributes that the corpus draws,
at static and at symbolic sizes. No device is needed: the kernels are only printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Iterable, Iterator

from inlaid.driver.compile import build_package
from inlaid.graph import ir
from inlaid.reference.codegen import FORMAT as REFERENCE
from inlaid_conformance.corpus import CORPUS, Choices, Entry, Form, Unfit
from inlaid_conformance.coverage import attribute_values
from inlaid_runtime.errors import InlaidError, PluginError, ScheduleWarning
from inlaid_runtime.execution.launch_code import decode_launches

ELEMENTS = ("float32", "float16", "bfloat16")
DRAWN = 60
"""Number of examples drawn of each operator and element type. One is compiled if it has a value that none before it has."""
_FLOAT64 = re.compile(r"\b\w*double\w*|\bfloat64x\d+\b")


def varied_forms(entry: Entry, element: str, drawn: int = DRAWN) -> Iterator[Form]:
    """Yield examples that cover the values of attributes in `drawn` examples, in all their forms."""
    covered_values: set[tuple[str, str]] = set()
    for number in range(drawn):
        try:
            example = entry.example(Choices.pinned(number), element)
        except Unfit:
            continue
        values = set(attribute_values(entry, example).items())
        if number == 0 or not values <= covered_values:
            covered_values |= values
            yield from example.forms()


def sampled(first: int) -> Iterator[tuple[str, Form]]:
    """Yield one example of each operator. Different values of `first` select different examples and element types."""
    for index, entry in enumerate(CORPUS, first):
        elements = [element for element in ELEMENTS if element in entry.dtypes]
        if elements:
            element = elements[index % len(elements)]
            forms = list(varied_forms(entry, element, 12))
            yield element, forms[index % len(forms)]


def corpus_forms() -> Iterator[tuple[str, Form]]:
    """Yield all examples."""
    for entry in CORPUS:
        for element in ELEMENTS:
            if element in entry.dtypes:
                yield from ((element, form) for form in varied_forms(entry, element))


def problems(target: str, prelude: str, forms: Iterable[tuple[str, Form]]) -> tuple[int, list[str]]:
    """Compile examples for a target. Returns the number of compiled examples, and descriptions of those with float64 in
    a kernel. Examples that the target refuses, and those with float64 operands, are left out. `prelude` is the text that all
    kernels share."""
    count, messages = 0, []
    for element, form in forms:
        operands = (*form.function.params, form.function.body)
        if any("float64" in str(operand.type) for operand in operands):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScheduleWarning)
                package = build_package(ir.Module({"main": form.function}), [target], keep=False)
        except PluginError:
            raise
        except InlaidError:
            continue
        count += 1
        for artifact in package.artifacts:
            if artifact.format == REFERENCE:
                continue
            source = decode_launches(artifact)[1].decode()
            match = _FLOAT64.search(source.removeprefix(prelude))
            if match:
                messages.append(f"{form.example.operator.name} {element}: {match[0]} in the kernels of {form}")
    return count, messages


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the kernels of all operators in narrower floats for float64.")
    parser.add_argument("target", help="opencl:kind=gpu, or cuda:arch=host")
    target = parser.parse_args().target
    from inlaid_cuda.dialect import DIALECT

    count, messages = problems(target, DIALECT.prelude, corpus_forms())
    print(*messages, sep="\n")
    print(f"{count} examples for {target}, {len(messages)} with float64")
    sys.exit(bool(messages))


if __name__ == "__main__":
    main()
