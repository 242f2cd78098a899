"""C source as a code format, compiled by the machine's C compiler when it is loaded.

For code generators that print C or call a library. Source code is readable, and not specific to one machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.host import CFunctionKernel, HostRuntime
from inlaid_runtime.execution.mapped import open_library
from inlaid_runtime.plugins.runtime_module import Loaded

COMPILERS = ("cc", "gcc", "clang")
"""Names of C compilers, in order of search."""
FLAGS = ("-std=c11", "-fwrapv", "-fno-strict-aliasing")
"""Compiler flags of C artifacts: signed integers wrap, and buffers may alias regardless of their types."""
MISSING = "no C compiler found"
REMEDY = f"install one of {', '.join(COMPILERS)}, such as Debian's gcc"

REGION_PRELUDE = """\
#include <stdint.h>
typedef struct {
    char message[256]; void *user; uint64_t *clock; int32_t (*signalled)(void); uint64_t own[3];
} inlaid_context;
"""
"""Declarations that C source needs before it defines a region; see `inlaid_runtime.execution.host`."""
REGION_PARAMETERS = (
    "const void *const *inputs, void *const *outputs, const void *const *constants, int64_t *dims, void *workspace,"
    " inlaid_context *context"
)
"""Parameters of a region's C function, which returns int32_t."""


_CPLUSPLUS = {"restrict": "__restrict", "_Bool": "bool"}
"""Keywords of C that kernels use, and their counterparts in C++."""


def find_compiler() -> str | None:
    """Return the path of the machine's C compiler; None if none is found."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def link_shared(files: Sequence[str], library: Path, folder: Path, flags: Sequence[str] = ()) -> None:
    """Link source and object files in a folder into a shared library. Raises `CompileError` if the C compiler is missing or
    fails."""
    compiler = find_compiler()
    if compiler is None:
        raise CompileError(MISSING, remedy=REMEDY)
    command = [compiler, "-shared", "-fPIC", "-O2", *flags, "-o", str(library), *files, "-lm"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        raise CompileError(f"{compiler} failed: {process.stderr.strip()[:500]}")


class CSourceRuntime(HostRuntime):
    """Runs artifacts whose code is C source that defines the region under the artifact's symbol. `user` is the value of
    `context->user`, the address of a function or table that the plugin provides and that must outlive this object."""

    def __init__(self, format: str, format_version: int, user: int | None = None) -> None:
        super().__init__(format, format_version)
        self._user = user

    def check(self, artifact: Artifact) -> str | None:
        """Return None if the artifact can run here and a C compiler is found, else the reason why not."""
        return super().check(artifact) or (f"{MISSING}: {REMEDY}" if find_compiler() is None else None)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Compile and load the region. Raises `Unsupported` if compiling or loading fails."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            try:
                (folder / "region.c").write_bytes(artifact.code)
                link_shared(["region.c"], folder / "region.so", folder, FLAGS)
                library = open_library(str(folder / "region.so"), (artifact.symbol,))
            except (CompileError, OSError, AttributeError) as error:
                raise Unsupported(f"cannot compile and load region {artifact.symbol}: {error}") from error
        entry = library.addresses[artifact.symbol]
        return CFunctionKernel(artifact, entry, list(constants.values()), (self, library), self._user).loaded()


def spread(head: str, parts: Sequence[str], end: str, width: int) -> str:
    """Format `head(part, ..., part)end` in lines of about `width` characters."""
    lines, line = [], f"{head}("
    for number, part in enumerate(parts):
        text = f"{part}{')' + end if number == len(parts) - 1 else ','}"
        if len(line) + len(text) + 1 > width and number:
            lines.append(line)
            line = f"{' ' * (len(head) - len(head.lstrip()) + 8)}{text}"
        else:
            line += f"{' ' * bool(number)}{text}"
    return "\n".join([*lines, line])


def cplusplus(text: str) -> str:
    """Return macro definitions that let C++ compilers accept the C keywords in a text; "" if it has none."""
    definitions = [f"#define {word} {other}\n" for word, other in _CPLUSPLUS.items() if re.search(rf"\b{word}\b", text)]
    return f"#ifdef __cplusplus\n{''.join(definitions)}#endif\n" if definitions else ""
