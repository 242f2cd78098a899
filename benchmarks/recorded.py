"""Records the code of models, to show that a refactoring changes none: LLVM text and C, as digests by kernel.

    python benchmarks/recorded.py -o before.json resnet50 mobilenet_v2_int8_tiny model.tflite
    python benchmarks/recorded.py --check before.json resnet50 mobilenet_v2_int8_tiny model.tflite

Without models: the networks of the onnx package in float32, except for those with 0.2 GB of weights or more, and tiny variants of
models in eight bits and of transformers. Targets are fixed, so that it does not depend on the machine, and nothing is compiled by
LLVM. Exits with 1 where code differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import inlaid
from inlaid import ops
from inlaid.artifact import Artifact
from inlaid.cache import MemoryStore, digest
from inlaid.driver import cut
from inlaid.driver.context import DriverContext
from inlaid.driver.prepare import FALLBACK
from inlaid.driver.region import compile_region
from inlaid.errors import InlaidError
from inlaid.plugins import Region
from inlaid.plugins.registry import default_registry
from zoo import MODELS, path_of

TARGETS = ("x86:threads=1,cpu=x86-64-v3", "x86:threads=2,cpu=cascadelake", "microcontroller:cpu=cortex-m4")
FULL = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2")
TINY = ("mobilenet_v2_int8", "vit_b16_int8", "bert_base", "gpt2_step", "lstm", "seq2seq", "unet_int8", "crnn", "detector")
TINY_SUFFIX = "_tiny"
DEFAULT = (*FULL, *(f"{name}{TINY_SUFFIX}" for name in TINY))
_SYMBOL = re.compile(r"inlaid_[0-9a-f]{32}")

Digests = dict[str, str]
"""Of the code of one model for one target, by region and number of the kernel."""


class _Recorded(BaseException):
    """Ends the compilation of a region once its text is known. No plugin is to blame for it."""


class _Texts:
    """Takes the place of `inlaid_x86.compilers.Compilers`: keeps the text of modules, and compiles none."""

    def __init__(self, *arguments: object) -> None:
        self.texts: list[str] = []

    def __enter__(self) -> _Texts:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def kernel(self, text: str, *arguments: object) -> str:
        self.texts.append(text)
        return f"inlaid_{digest(text)[:32]}"

    def entry(self, text: str, symbol: str) -> None:
        self.texts.append(text.replace(symbol, "REGION"))

    def finish(self, report: object) -> dict[str, bytes]:
        raise _Recorded(self.texts)


def regions(module: inlaid.Module, target: str) -> Iterator[tuple[int, Region, DriverContext]]:
    """The regions of a module that a target compiles, by number. Raises an `InlaidError` where the module cannot be partitioned."""
    registry = default_registry()
    partitioned, candidates = cut(module, [target], registry)
    for number, (name, index) in enumerate(partitioned.regions.items()):
        candidate = candidates[index].target
        if candidate.kind != FALLBACK:
            context = DriverContext(candidate, registry, ops.TABLE, objects=MemoryStore())
            yield number, Region(name, partitioned.module[name], candidate), context


def record(module: inlaid.Module, target: str) -> Digests:
    """The code of a module for a target. Raises an `InlaidError` where it cannot be compiled."""
    found: Digests = {}
    for number, region, context in regions(module, target):
        found |= {f"{number}/{place}": digest(text) for place, text in enumerate(_normal(_texts(region, context)))}
    return found


def _texts(region: Region, context: DriverContext) -> list[str]:
    """The text of each kernel of a region, and last what calls them."""
    try:
        if region.target.kind != "x86":
            return _c_texts(compile_region(region, context))
        with mock.patch("inlaid_x86.kernels.Compilers", _Texts):
            compile_region(region, context)
    except _Recorded as done:
        texts: list[str] = done.args[0]
        return texts
    raise AssertionError("no code was generated")


def _c_texts(artifact: Artifact) -> list[str]:
    """The kernels of a microcontroller's artifact, and last the rest of it."""
    unit = json.loads(artifact.code)
    named = {kernel["name"]: f"kernel{number}" for number, kernel in enumerate(unit["kernels"])}
    pattern = re.compile("|".join(rf"\binlaid_{re.escape(name)}\b" for name in named) or r"(?!)")
    texts = [pattern.sub(lambda found: named[found[0].removeprefix("inlaid_")], kernel.pop("text")) for kernel in unit["kernels"]]
    for kernel in unit["kernels"]:
        del kernel["name"]
    return [*texts, json.dumps(unit, sort_keys=True)]


def _normal(texts: Sequence[str]) -> list[str]:
    """The texts with symbols by their order."""
    numbers: dict[str, str] = {}
    return [_SYMBOL.sub(lambda found: numbers.setdefault(found[0], f"symbol{len(numbers)}"), text) for text in texts]


def differences(before: Mapping[str, Digests], after: Mapping[str, Digests]) -> list[str]:
    """What is not the same in two records, in words."""
    lines = [f"{name}: only in one record" for name in sorted(before.keys() ^ after.keys())]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        changed = [place for place in sorted(old.keys() | new.keys()) if old.get(place) != new.get(place)]
        if changed:
            lines.append(f"{name}: {len(changed)} of {len(old)} texts differ, the first is {changed[0]}")
    return lines


def load(name: str) -> inlaid.Module:
    """A model by its name in the zoo, ending in `_tiny` for its tiny variant, or by the path of its file."""
    stem = name.removesuffix(TINY_SUFFIX)
    return inlaid.load(path_of(stem, tiny=stem != name) if stem in MODELS else Path(name))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--target", action="append", dest="targets", help="default: " + " ".join(TARGETS))
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("-o", "--output", type=Path, help="write the record to this file")
    way.add_argument("--check", type=Path, help="compare with this record")
    options = parser.parse_args(arguments)
    found: dict[str, Digests] = {}
    for name in options.models:
        module = load(name)
        for target in options.targets or TARGETS:
            key = f"{name} for {target}"
            try:
                found[key] = record(module, target)
            except InlaidError as error:
                found[key] = {"error": str(error)}
            print(f"{key}: {found[key].get('error') or f'{len(found[key])} texts'}", flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
        return 0
    lines = differences(json.loads(options.check.read_text(encoding="utf-8")), found)
    print("\n".join(lines) or f"the code of {len(found)} models is the same")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
