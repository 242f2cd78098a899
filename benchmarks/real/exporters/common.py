"""The command line that the exporters' scripts share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def run(exports: Mapping[str, Callable[[Path], None]]) -> None:
    """Write the models that the command line names, or all, into its folder; a failure is told and ends no other."""
    folder, *chosen = sys.argv[1:]
    failed = 0
    for name in chosen or exports:
        try:
            exports[name](Path(folder) / f"{name}.onnx")
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:500]}", file=sys.stderr)
    sys.exit(1 if failed else 0)
