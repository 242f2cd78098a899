"""Kernels for compilers that are not PoCL's: Clang's OpenCL C for SPIR-V, on which those of vendors are based."""

import shutil
import subprocess

import pytest
from tests.threads.arithmetic import LANES, NATIVE, kernel, operations
from tests.threads.printed import Printed, make_region
from tests.unit.schedules.threads.interpreter_checks import SHUFFLES

from inlaid.codegen.threads.float64_functions import FUNCTIONS
from inlaid.codegen.threads.kernel import ThreadKernelText, thread_source
from inlaid_opencl.dialect import DIALECT

from . import row_kernels

COMPILER = "clang"
STANDARDS = ("CL1.2", "CL3.0")
# A kernel need not use every helper function of the source, or every position in the grid.
UNUSED = ["-Wno-unused-function", "-Wno-unused-variable"]
OPTIONS = ["-Werror", *UNUSED, "-fsyntax-only", "-Xclang", "-finclude-default-header", "-x", "cl", "-"]

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"needs {COMPILER}: apt-get install clang")


def check_standard(source: str, *standards: str, more: tuple[str, ...] = ()) -> None:
    """Compile a source for a device that is neither x86 nor ARM. Warnings are errors."""
    for standard in standards:
        command = [COMPILER, "-target", "spir64", f"-cl-std={standard}", "-Wall", *more, *OPTIONS]
        run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{standard}: {run.stderr[:2000]}"


@pytest.mark.parametrize("lanes", LANES)
def test_operations(lanes):
    """Every function and conversion of every element type."""
    programs = [kernel(dtype, operations(dtype), dtype, 3, lanes) for dtype in NATIVE]
    source = thread_source(Printed(make_region(programs), DIALECT).texts, DIALECT)
    assert "inlaid_fma(" in source and "roundeven" in source
    check_standard(source, *STANDARDS)


def test_helpers():
    """All helpers but shuffles, which need OpenCL C 3.0."""
    names = [*(name for name in DIALECT.helpers if name != "inlaid_shuffle"), *(f"inlaid_float64_{name}" for name in FUNCTIONS)]
    text = ThreadKernelText("\n".join(names), False, "int64_t")
    check_standard(thread_source([text], DIALECT).removesuffix(text.text), *STANDARDS)


def test_shuffles():
    programs = [program for _, program in row_kernels.row_programs()]
    printed = Printed(make_region(programs), DIALECT, SHUFFLES.scopes, subgroup=row_kernels.LANES)
    source = thread_source(printed.texts, DIALECT)
    assert "sub_group_shuffle(" in source
    # Clang has the functions of the extension in its header, and takes the pragma for one of an unknown extension.
    check_standard(source, "CL3.0", more=("-Wno-ignored-pragmas",))
