"""Record what Inlaid generates for models on all targets, as digests, to show that a refactoring changes nothing.

    python benchmarks/recorded.py --check record.txt
    python benchmarks/recorded.py --check record.txt --quick
    python benchmarks/recorded.py --against ../before --target cuda:arch=sm_80 squeezenet
    python benchmarks/recorded.py -o record.txt

An item is a text: the code of a region (LLVM IR, OpenCL C, CUDA C++, VTA instructions, the graph of `reference`), a C file of a
firmware, or the rest of a package: plans, signatures, workspaces, constraints and digests of constants, without versions. A record
has a line per item: target, model, item, digest. No device is needed, and neither LLVM nor NVRTC compiles. Targets name their
processor, so records do not depend on the machine, but for one thing: numpy computes Winograd weights, whose last bits depend on
the processor's BLAS, and their digests are in the items `package`. Records depend on the versions of onnx, onnxruntime, numpy and
llvmlite.

By default, the models and targets of `CASES`, in about 7 minutes; `--quick` is a sample. A model is a name of the zoo, with `_tiny`
or `_symbolic` for these variants, a file of MLPerf Tiny in the folder `--models`, a network or layer of benchmarks/vta.py, or the
path of any model. `--against` compares with the items of another checkout, by its environment and its copy of this program, and
prints the differences of the texts. `--renames` is a JSON object of old names and new names: in the texts of this checkout, each
new name is replaced by the old one, as a whole word. Exits with 1 where items differ.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import itertools
import json
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import inlaid
import resnet18
from inlaid import ops
from inlaid.driver import build_package, cut
from inlaid.driver.context import DriverContext
from inlaid.driver.prepare import FALLBACK
from inlaid.plugins import Region
from inlaid.plugins.registry import default_registry
from inlaid.settings import DEFAULT as SETTINGS
from inlaid.settings import Settings
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.cache import MemoryCache
from inlaid_runtime.errors import InlaidError, InlaidWarning, Unsupported
from inlaid_runtime.execution.package import Package, encode_package
from zoo import INT8, MODELS, cache_folder, model_path

TARGETS = ("x86:threads=1,cpu=x86-64-v3", "x86:threads=2,cpu=cascadelake", "microcontroller:cpu=cortex-m4")
"""Targets whose kernels `replay.py` schedules again."""
FULL = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2")
TINY = ("mobilenet_v2_int8", "vit_b16_int8", "bert_base", "gpt2_step", "lstm", "seq2seq", "unet_int8", "crnn", "detector")
TINY_SUFFIX, SYMBOLIC_SUFFIX = "_tiny", "_symbolic"
DEFAULT = (*FULL, *(f"{name}{TINY_SUFFIX}" for name in TINY))
"""Models of `replay.py`."""

SIGNED = tuple(f"{name}_int8_signed{TINY_SUFFIX}" for name in ("mobilenet_v2", "bert_base", "unet"))
SYMBOLIC = tuple(
    f"{name}{SYMBOLIC_SUFFIX}"
    for name in ("squeezenet", "mobilenet_v2", "lstm", "super_resolution", "crnn", "seq2seq", "text_finder", "detector")
)
TINY_EXTRAS = tuple(f"{name}{TINY_SUFFIX}" for name in ("dcgan", "text_finder", "speech_step", "gpt2_prefill"))
CORPUS = (*DEFAULT, *TINY_EXTRAS, "squeezenet_int8", *SIGNED, *SYMBOLIC)
SAMPLE_MODELS = ("squeezenet", "mobilenet_v2_int8_tiny", "bert_base_tiny", "lstm_tiny", "detector_tiny", "squeezenet_symbolic")
MLPERF = tuple(f"{name}.tflite" for name in ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"))
STATIC = (*MLPERF, "squeezenet", "mobilenet_v2_int8_tiny", "bert_base_tiny", "lstm_tiny", "crnn_tiny")
RESNET18 = "resnet18_shifts"
"""`resnet18.py` in int8 with scales that are powers of two."""
LAYER = "layer_"
"""Prefix of the layers of `vta.py`."""

CASES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "x86:threads=1,cpu=x86-64-v3": CORPUS,
        "x86:threads=2,cpu=cascadelake": CORPUS,
        "x86:threads=1,cpu=sapphirerapids": SAMPLE_MODELS,
        "x86:threads=1,cpu=portable": SAMPLE_MODELS,
        "opencl:kind=gpu": CORPUS,
        "opencl:kind=gpu,subgroup=32,float64=false": SAMPLE_MODELS,
        "opencl:kind=cpu": SAMPLE_MODELS,
        "opencl:kind=embedded": SAMPLE_MODELS,
        "cuda:arch=sm_80": CORPUS,
        "cuda:arch=sm_90a,tf32=true": SAMPLE_MODELS,
        "microcontroller:cpu=cortex-m4": STATIC,
        "microcontroller:cpu=cortex-m55": STATIC,
        "microcontroller:cpu=c99": STATIC,
        "vta_fpga x86:threads=1,cpu=x86-64-v3": (RESNET18,),
        "vta_fpga": tuple(f"{LAYER}C{number}" for number in range(2, 12)),
        "vta_fpga:threads=2,slots=1": tuple(f"{LAYER}C{number}" for number in (2, 3, 4)),
        "reference": SAMPLE_MODELS,
    }
)
"""Models by targets. Several targets, in order of priority, are separated by spaces."""
SAMPLE = ("squeezenet", "mobilenet_v2_int8_tiny", "lstm_tiny", "super_resolution_symbolic", MLPERF[0], f"{LAYER}C4")
QUICK: Mapping[str, Sequence[str]] = MappingProxyType(
    {targets: tuple(model for model in models if model in SAMPLE) for targets, models in CASES.items()}
)
"""The cases of `--quick`."""

MLPERF_FOLDER = Path(__file__).parents[2] / "shared" / "models"
"""Default folder of MLPerf Tiny's models, as in `make bench-micro`."""
ERROR = "error"
"""Name of the item of a model that cannot be compiled."""
DIFF_LINES = 60
"""Lines of a text's difference that are printed."""


@dataclass(frozen=True, order=True)
class Item:
    """One text: of a model on targets, a region, a file or the package."""

    targets: str
    model: str
    name: str

    def __str__(self) -> str:
        return "\t".join((self.targets, self.model, self.name))


class _Printer:
    """Stands in for `inlaid_x86.compilers.Compilers`: its objects are the texts that LLVM would compile, and how it would."""

    def __init__(self, features: Sequence[str], store: object) -> None:
        self._features = " ".join(features)
        self._symbols: dict[str, str] = {}
        self._objects: dict[str, bytes] = {}

    def __enter__(self) -> _Printer:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def kernel(self, text: str, effort: int = 0, extensions: Sequence[str] = ()) -> str:
        text = f"; effort {effort}, features {' '.join((self._features, *extensions))}\n{text}"
        symbol = self._symbols.setdefault(text, f"kernel{len(self._symbols)}")
        self._objects[symbol] = text.encode()
        return symbol

    def entry(self, text: str, symbol: str) -> None:
        self._objects[symbol] = f"; features {self._features}\n{text}".encode()

    def finish(self, report: object) -> dict[str, bytes]:
        return self._objects


_REPLACEMENTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "x86": {
            "inlaid_x86.kernels.Compilers": _Printer,
            "inlaid_x86.codegen.link_image": lambda objects, *arguments: b"\n".join(objects),
        },
        "cuda": {
            "inlaid_cuda.codegen.compiler": lambda options: SimpleNamespace(cuda=(0, 0)),
            "inlaid_cuda.codegen.compile_cached": lambda library, source, *arguments: source.encode(),
        },
    }
)
"""What is replaced in code generators, by kind of target, so that an artifact has the text that would be compiled."""


@contextmanager
def print_only(targets: Iterable[str]) -> Iterator[None]:
    """Make the code generators of targets return what they print instead of compiling it."""
    with ExitStack() as stack:
        for target in targets:
            for name, value in _REPLACEMENTS.get(target.partition(":")[0], {}).items():
                stack.enter_context(mock.patch(name, value))
        yield


def texts(targets: str, model: str, folder: Path) -> dict[str, str]:
    """Return the texts of a model for targets, by item; for a model that cannot be compiled, the text of the error. MLPerf Tiny's
    files are in `folder`."""
    kinds = targets.split()
    try:
        if model.startswith(LAYER):
            return {"stream": _layer(model.removeprefix(LAYER), targets)}
        return module_texts(_module(model, folder), kinds)
    except InlaidError as error:
        return {ERROR: str(error)}


def module_texts(module: inlaid.Module, targets: Sequence[str], settings: Settings = SETTINGS) -> dict[str, str]:
    """Return the texts of a module for targets, by item. Raises an `InlaidError` where it cannot be compiled."""
    with print_only(targets):
        return dict(_texts(build_package(module, targets, settings=settings, keep=False)))


def _texts(package: Package) -> Iterator[tuple[str, str]]:
    """Yield the texts of a package by item."""
    for artifact in package.artifacts:
        for number, variant in enumerate((artifact, *artifact.variants)):
            yield f"{artifact.symbol}.{number}" if number else artifact.symbol, _code(variant)
    yield "package", _contents(package)
    if any(artifact.format == "c99-model" for artifact in package.artifacts):
        from inlaid_microcontroller.export import compose_package

        try:
            firmware = compose_package(package, "model", "c99")
            yield from {**firmware.source.files(), **firmware.files}.items()
        except Unsupported as error:
            yield "firmware", str(error)


def _code(artifact: Artifact) -> str:
    """Return the code of a region as text."""
    if artifact.format == "vta-stream":
        return _stream(artifact.code)
    if artifact.format in ("opencl-c", "cuda-cubin"):
        return _launches(artifact.code)
    return artifact.code.decode()


def _launches(code: bytes) -> str:
    """Return the launches, kernel parameters and source of a region for devices (see `inlaid_runtime.execution.launch_code`)."""
    parts = []
    for _ in range(2):
        end = 8 + int.from_bytes(code[:8], "little")
        parts.append(_json(json.loads(code[8:end])))
        code = code[end:]
    return "\n".join((*parts, code.decode()))


def _stream(code: bytes) -> str:
    """Return the DRAM map, instructions and micro-ops of a region for VTA."""
    from inlaid_runtime.execution.codec import encode
    from inlaid_vta_fpga.image import Image
    from inlaid_vta_fpga.isa.assembler import Program, print_program
    from inlaid_vta_fpga.isa.encoding import Encoding

    image = Image.from_bytes(code)
    instructions = Encoding(image.header.config).decode_program(image.stream)
    return f"{_json(encode(image.header))}\n{print_program(Program(tuple(instructions), {}))}.uops {image.uops.hex(' ', 4)}\n"


def _layer(name: str, target: str) -> str:
    """Return the stream of a layer of `vta.py`."""
    import vta

    return _stream(vta.compiled(name, default_registry().target(target).options)[0].to_bytes())


def _contents(package: Package) -> str:
    """Return the file of a package without code and versions, and with digests of its tensors."""
    with zipfile.ZipFile(io.BytesIO(encode_package(package))) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        manifest, weights = json.loads(members.pop("manifest.json")), members.pop("weights.bin")
        infos = [f"{info.filename} {info.date_time} {info.compress_type} {info.external_attr}" for info in archive.infolist()]
    for tensor in manifest["tensors"]:
        tensor["digest"] = _digest(weights[tensor["offset"] :][: tensor["bytes"]])
    descriptions = [json.loads(content[8:][: int.from_bytes(content[:8], "little")]) for content in members.values()]
    for entry in (manifest, *manifest["regions"], *(each for region in manifest["regions"] for each in region["variants"])):
        entry.pop("version", None)
        entry.pop("sha256", None)  # hash of the code and of versions; code is an item
    for description in descriptions:
        del description["format_version"]
    return "\n".join((*infos, _json(manifest), *map(_json, descriptions)))


def _json(value: object) -> str:
    return json.dumps(value, indent=1)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _module(model: str, folder: Path) -> inlaid.Module:
    """Load a model by its name in `CASES`, or by its path."""
    if model == RESNET18:
        return resnet18.quantized(resnet18.build())
    if model in MLPERF:
        return load(str(folder / model))
    if _stem(model) not in INT8:
        return load(model)
    from onnxruntime.quantization.calibrate import MinMaxCalibrater

    ranges = MinMaxCalibrater.compute_data
    with mock.patch.object(MinMaxCalibrater, "compute_data", lambda self: _round_ranges(ranges(self))):
        return load(model, cache_folder() / "rounded")


def _round_ranges(ranges: Any) -> Any:
    """Round the ranges of ONNX Runtime's calibration to 5 bits. Their last bits depend on the processor that ran the model."""
    for data in ranges.values():
        for side in ("lowest", "highest"):
            value = getattr(data, side)
            mantissa, exponent = np.frexp(value)
            setattr(data, side, np.ldexp(np.rint(mantissa * 32) / 32, exponent).astype(value.dtype))
    return ranges


def load(name: str, folder: Path | None = None) -> inlaid.Module:
    """Load a model by its name in the zoo, with `_tiny` or `_symbolic` for these variants, or by the path of its file. `folder`:
    where the zoo's files are written, in place of the cache."""
    if _stem(name) not in MODELS:
        return inlaid.load(Path(name))
    tiny, symbolic = (name.endswith(suffix) for suffix in (TINY_SUFFIX, SYMBOLIC_SUFFIX))
    return inlaid.load(model_path(_stem(name), tiny, folder, symbolic))


def _stem(name: str) -> str:
    return name.removesuffix(TINY_SUFFIX).removesuffix(SYMBOLIC_SUFFIX)


def regions(module: inlaid.Module, target: str) -> Iterator[tuple[int, Region, DriverContext]]:
    """Yield the regions of a module that a target compiles, by number. Raises an `InlaidError` where the module cannot be
    partitioned."""
    registry = default_registry()
    partitioned, candidates = cut(module, [target], registry)
    for number, (name, index) in enumerate(partitioned.regions.items()):
        candidate = candidates[index].target
        if candidate.kind != FALLBACK:
            context = DriverContext(candidate, registry, ops.TABLE, objects=MemoryCache())
            yield number, Region(name, partitioned.module[name], candidate), context


class Renames:
    """Maps the new names in a text to the old ones, as whole words. Raises ValueError if two old names have one new name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._old = {new: old for old, new in names.items()}
        if len(self._old) != len(names):
            raise ValueError("expected a different new name for each old name, found one twice; remove it from the table")
        longest = sorted(self._old, key=len, reverse=True)
        self._pattern = re.compile("|".join(rf"(?<!\w){re.escape(new)}(?!\w)" for new in longest) or r"(?!)")

    def __call__(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._old[match[0]], text)


@dataclass(frozen=True)
class Recorder:
    """Generates items. folder: files of MLPerf Tiny. renames: applied to all texts, and to targets, models and names of items."""

    folder: Path
    renames: Renames

    def items(self, targets: str, model: str) -> Iterator[tuple[Item, str]]:
        """Yield the items of one case and their texts."""
        for name, text in texts(targets, model, self.folder).items():
            yield Item(*map(self.renames, (targets, Path(model).name, name))), self.renames(text)

    def digests(self, cases: Iterable[tuple[str, str]]) -> dict[Item, str]:
        """Return the digests of the items of cases."""
        digests: dict[Item, str] = {}
        for targets, model in cases:
            items = dict(self.items(targets, model))
            errors = [text for item, text in items.items() if item.name == ERROR]
            print(f"{targets} {model}: {errors[0] if errors else f'{len(items)} items'}", flush=True)
            digests |= {item: _digest(text.encode()) for item, text in items.items()}
        return digests


def select_cases(table: Mapping[str, Sequence[str]], targets: Sequence[str], models: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of targets and model to record: those of a table with one of `models`, or all combinations of `models` that
    it lacks with `TARGETS`; with `targets`, these and `models`, or their models in the table."""
    if targets:
        return [(target, model) for target in targets for model in models or table.get(target, CORPUS)]
    pairs = [(target, model) for target, names in table.items() for model in names if not models or model in models]
    recorded_models = {model for _, model in pairs}
    return pairs + [(target, model) for model in models if model not in recorded_models for target in TARGETS]


def versions() -> str:
    """Return the versions of the packages that models and texts depend on."""
    installed = []
    for name in ("numpy", "onnx", "onnxruntime", "llvmlite"):
        with suppress(PackageNotFoundError):
            installed.append(f"{name} {version(name)}")
    return ", ".join(installed)


def write_record(path: Path, digests: Mapping[Item, str]) -> None:
    """Write a record: a comment with the versions that texts depend on, then a line per item."""
    lines = [f"# {versions()}", *(f"{item}\t{value}" for item, value in sorted(digests.items()))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((*lines, "")), encoding="utf-8")


def read_record(path: Path) -> tuple[dict[Item, str], str]:
    """Read a record: the digests, and the versions that it was written with."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    return {Item(*fields[:3]): fields[3] for fields in (line.split("\t") for line in lines)}, first.removeprefix("# ")


def differences(before: Mapping[Item, str], after: Mapping[Item, str]) -> list[Item]:
    """Return the items that two records do not share, or that differ."""
    return [item for item in sorted(before.keys() | after.keys()) if before.get(item) != after.get(item)]


def compare(recorder: Recorder, cases: Sequence[tuple[str, str]], checkout: Path) -> int:
    """Print the differences between the texts of another checkout and of this one. Returns how many items differ."""
    changed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for targets, model in cases:
            folder = Path(scratch) / f"{targets} {Path(model).name}"
            _record_elsewhere(checkout, recorder.folder, recorder.renames(targets), model, folder)
            before = {Item(*file.relative_to(folder).parts): file.read_text(encoding="utf-8") for file in folder.glob("*/*/*")}
            after = dict(recorder.items(targets, model))
            for item in differences(before, after):
                changed += 1
                lines = (each.get(item, "").splitlines() for each in (before, after))
                diff = list(difflib.unified_diff(*lines, "before", "after", n=1, lineterm=""))
                more = [f"... and {len(diff) - DIFF_LINES} more lines (--texts writes all)"] if len(diff) > DIFF_LINES else []
                print("\n".join((str(item), *diff[:DIFF_LINES], *more)), flush=True)
            print(f"{targets} {model}: compared {len(before.keys() | after.keys())} items", flush=True)
    return changed


def _record_elsewhere(checkout: Path, models: Path, targets: str, model: str, folder: Path) -> None:
    """Write the texts of a case to a folder, by the recorder and the environment of another checkout."""
    python, program = checkout / ".venv/bin/python", checkout / "benchmarks/recorded.py"
    if not python.exists():
        raise SystemExit(f"expected an environment at {python}, found none; run make .venv/.developing in {checkout}")
    command = [python.absolute(), program.absolute(), "--models", models.absolute(), "--texts", folder, "--target", targets, model]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"the recorder of {checkout} fails:\n{process.stdout[-1000:]}{process.stderr[-3000:]}")


def write_texts(folder: Path, recorder: Recorder, cases: Iterable[tuple[str, str]]) -> None:
    """Write the text of each item to the file <targets>/<model>/<item> of a folder."""
    for item, text in itertools.chain.from_iterable(recorder.items(*case) for case in cases):
        file = folder / item.targets / item.model / item.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODEL", help="default: those of CASES")
    parser.add_argument("--target", action="append", default=[], help="targets, separated by spaces; default: those of CASES")
    parser.add_argument("--quick", action="store_true", help="record a sample")
    parser.add_argument("--models", type=Path, default=MLPERF_FOLDER, help="folder of MLPerf Tiny's models")
    parser.add_argument("--renames", type=Path, help="JSON object of old and new names")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("-o", "--output", type=Path, help="write the record to this file")
    action.add_argument("--check", type=Path, help="compare with this record")
    action.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with the texts of another checkout")
    action.add_argument("--texts", type=Path, metavar="FOLDER", help="write the texts to this folder")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", InlaidWarning)
    renames = Renames(json.loads(options.renames.read_text(encoding="utf-8")) if options.renames else {})
    recorder = Recorder(options.models, renames)
    cases = select_cases(QUICK if options.quick else CASES, options.target, options.names)
    missing = [model for _, model in cases if model in MLPERF and not (options.models / model).is_file()]
    if missing:
        parser.error(
            f"expected {missing[0]} in {options.models}, found no such file; set --models to the folder of MLPerf Tiny's models"
        )
    if options.texts:
        write_texts(options.texts, recorder, cases)
        return 0
    if options.against:
        return 1 if compare(recorder, cases, options.against) else 0
    after = recorder.digests(cases)
    if options.output:
        write_record(options.output, after)
        return 0
    record, record_versions = read_record(options.check)
    keys = {(renames(targets), Path(model).name) for targets, model in cases}
    changed = differences({item: value for item, value in record.items() if (item.targets, item.model) in keys}, after)
    for item in changed:
        print(f"{'differs' if item in record and item in after else 'not in both'}: {item}")
    if changed and record_versions != versions():
        print(f"the record was written with {record_versions}; installed are {versions()}")
    print(f"{len(changed)} of {len(after)} items differ")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
