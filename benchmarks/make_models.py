"""Builds the models of the benchmarks as ONNX files.

python benchmarks/make_models.py [MODEL ...] [--tiny] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from zoo import MODELS, model_path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--tiny", action="store_true", help="two layers and small widths, as the tests use")
    parser.add_argument("--out", type=Path, help="write the files here; default: the user's cache folder")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in MODELS or (arguments.tiny and MODELS[name].tiny is None)]
    if unknown:
        parser.error(f"there is no {'tiny ' if arguments.tiny else ''}model {unknown[0]!r}; there are {', '.join(MODELS)}")
    for name in arguments.models or [name for name, entry in MODELS.items() if entry.tiny or not arguments.tiny]:
        start = time.perf_counter()
        path = model_path(name, arguments.tiny, arguments.out)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
