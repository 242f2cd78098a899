"""Kinds of mutants: their seeds, how a mutant is made from a number, and what is done with it."""

from __future__ import annotations

import json
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.fuzz.models import SAMPLES
from tests.fuzz.mutate import mutated_bytes, mutated_json, mutated_message, mutated_words
from tests.package_files import composed, described, joined, read_members, with_code

from inlaid_runtime import Executable, arith
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.package import read_package

LARGEST = 1 << 24
"""Inputs of more bytes are not made: a mutant that needs them is only loaded."""
RUNS = 2
"""Runs of a loaded mutant, each with other sizes and values."""


class Kind(ABC):
    """A kind of mutants. `name` is its name in the table; files of mutants end with `suffix`; `weight` is its share."""

    name: str
    suffix: str
    weight: int

    def __init__(self, corpus: Path) -> None:
        self._folder = corpus / self.name

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        """The seeds: sound files, in a fixed order."""
        return [path.read_bytes() for path in sorted(self._folder.iterdir())]

    def write_seeds(self) -> None:
        """Write the seeds to the folder of the corpus."""
        self._folder.mkdir(parents=True)
        for name, data in self.sound().items():
            (self._folder / name).write_bytes(data)

    @abstractmethod
    def sound(self) -> Mapping[str, bytes]:
        """Make the seeds, by name. Empty if this machine lacks what the kind needs."""

    def mutant(self, number: int) -> bytes:
        """Make mutant `number`: equal numbers and seeds give equal bytes."""
        rng = Random(f"{self.name} {number}")
        return self.mutate(self.seeds[number % len(self.seeds)], rng)

    @abstractmethod
    def mutate(self, data: bytes, rng: Random) -> bytes:
        """Make a mutant of a seed."""

    @abstractmethod
    def use(self, data: bytes, rng: Random, folder: Path) -> None:
        """Load a mutant and run it, with inputs from `rng`. Raises `InlaidError` for a refused mutant or a failed run."""


# --- models ---------------------------------------------------------------------------------------------------------------


def _compile_and_run(module: Any, rng: Random) -> None:
    import inlaid

    target = "x86:threads=1" if rng.random() < 0.05 else "reference"
    run_executable(inlaid.compile(module, [target], cache=False), rng)


class OnnxModels(Kind):
    """ONNX models, changed as protobuf messages and as bytes."""

    name, suffix, weight = "onnx", ".onnx", 25

    def sound(self) -> Mapping[str, bytes]:
        return {name: sample.model().SerializeToString() for name, sample in SAMPLES.items()}

    @cached_property
    def _operators(self) -> Sequence[str]:
        import onnx.defs

        return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})

    def mutate(self, data: bytes, rng: Random) -> bytes:
        import onnx

        if rng.random() < 0.3:
            return mutated_bytes(data, rng, self.seeds)
        model = onnx.ModelProto.FromString(data)
        mutated_message(model, rng, self._operators)
        return bytes(model.SerializeToString())

    def use(self, data: bytes, rng: Random, folder: Path) -> None:
        from inlaid_onnx import load

        _compile_and_run(load(data), rng)


class TfliteModels(Kind):
    """TensorFlow Lite models, changed as words and as bytes."""

    name, suffix, weight = "tflite", ".tflite", 25

    def sound(self) -> Mapping[str, bytes]:
        from plugins.tflite.tests.samples import SAMPLES as FILES

        return FILES

    def mutate(self, data: bytes, rng: Random) -> bytes:
        return mutated_words(data, rng, self.seeds)

    def use(self, data: bytes, rng: Random, folder: Path) -> None:
        from inlaid_tflite import load

        _compile_and_run(load(data), rng)


# --- packages -------------------------------------------------------------------------------------------------------------


def run_executable(executable: Executable, rng: Random) -> None:
    """Run an executable on random inputs of several sizes. Raises the errors of the last run."""
    error: InlaidError | None = None
    for _ in range(RUNS):
        inputs = _inputs(executable, rng)
        if inputs is None:
            return
        try:
            executable.run(inputs)
            error = None
        except InlaidError as failure:
            error = failure
    if error is not None:
        raise error


def _inputs(executable: Executable, rng: Random) -> dict[str, Any] | None:
    """Draw inputs; None if they are too large, or have sizes that nobody could give."""
    sizes: dict[arith.Expr, int] = {}
    feeds: dict[str, Any] = {}
    generator = np.random.default_rng(rng.randrange(1 << 32))
    for spec in executable.inputs:
        shape = []
        for dim in spec.shape:
            for size in sorted(arith.free_vars(dim), key=repr):
                sizes.setdefault(size, rng.choice((0, 1, 2, 3, 5, 9)))
            try:
                shape.append(arith.evaluate(dim, sizes))
            except ZeroDivisionError:
                return None
        if math.prod(max(size, 1) for size in shape) * 8 > LARGEST or min(shape, default=0) < 0:
            return None
        if spec.dtype is None:
            feeds[spec.name] = [np.ones((2, 3), np.float32)] * rng.randrange(3)
        elif spec.dtype.kind == "string":
            feeds[spec.name] = np.full(shape, "text", object)
        elif spec.dtype.name == "bool":
            feeds[spec.name] = generator.integers(0, 2, shape).astype(bool)
        elif spec.dtype.kind == "float":
            feeds[spec.name] = generator.standard_normal(shape).astype(spec.dtype.numpy)
        else:
            feeds[spec.name] = generator.integers(-1 if rng.random() < 0.2 else 0, 4, shape).astype(spec.dtype.numpy)
    return feeds


class Packages(Kind):
    """Packages of a target: the manifest, the table of tensors and the weights are changed with their checksums repaired, or bytes
    of the file without."""

    suffix = ".inlaid"

    def __init__(self, corpus: Path, target: str, weight: int) -> None:
        self.target = target
        self.name = f"package {target}"
        self.weight = weight
        super().__init__(corpus)

    def sound(self) -> Mapping[str, bytes]:
        return packages(self.target)

    def mutate(self, data: bytes, rng: Random) -> bytes:
        choice = rng.random()
        if choice < 0.1:
            return mutated_bytes(data, rng, self.seeds)
        members = read_members(data)
        if choice < 0.2 and members["weights.bin"]:
            members["weights.bin"] = mutated_bytes(members["weights.bin"], rng)
        elif choice < 0.25:
            member = rng.choice([name for name in members if name.startswith("code/")])
            members[member] = mutated_bytes(members[member], rng)
        else:
            members["manifest.json"] = json.dumps(mutated_json(json.loads(members["manifest.json"]), rng)).encode()
        return composed(members.items())

    def use(self, data: bytes, rng: Random, folder: Path) -> None:
        use_package(data, rng, folder)


def use_package(data: bytes, rng: Random, folder: Path) -> None:
    """Load and run a package."""
    path = folder / "mutant.inlaid"
    path.unlink(missing_ok=True)  # a mapped file must stay as it is
    path.write_bytes(data)
    run_executable(Executable(read_package(path)), rng)


class Codes(Kind):
    """Packages whose code members are changed, with all checksums repaired: parts of code that is no native code."""

    suffix = ".inlaid"

    def __init__(self, corpus: Path, target: str, name: str, weight: int, change: Callable[[bytes, Random], bytes]) -> None:
        self.target, self.name, self.weight = target, name, weight
        self._change = change
        super().__init__(corpus)

    def sound(self) -> Mapping[str, bytes]:
        return packages(self.target)

    def mutate(self, data: bytes, rng: Random) -> bytes:
        members = read_members(data)
        regions = json.loads(members["manifest.json"])["regions"]
        member = rng.choice([region["code"] for region in regions if region["target"].startswith(self.target)])
        description, code = described(members[member])
        return composed(with_code(members, member, joined(description, self._change(code, rng))).items())

    def use(self, data: bytes, rng: Random, folder: Path) -> None:
        use_package(data, rng, folder)


def changed_launches(code: bytes, rng: Random) -> bytes:
    """Change the launch plan in code, and leave its program."""
    (length,) = struct.unpack_from("<Q", code)
    plan = json.dumps(mutated_json(json.loads(code[8 : 8 + length]), rng)).encode()
    return struct.pack("<Q", len(plan)) + plan + code[8 + length :]


def changed_stream(code: bytes, rng: Random) -> bytes:
    """Change the header of a VTA region, or bytes of its stream and micro-ops."""
    magic, length = struct.unpack_from("<4sI", code)
    header, rest = code[8 : 8 + length], code[8 + length :]
    if rng.random() < 0.6:
        header = json.dumps(mutated_json(json.loads(header), rng)).encode()
    else:
        rest = mutated_bytes(rest, rng)
    return struct.pack("<4sI", magic, len(header)) + header + rest


def changed_text(code: bytes, rng: Random) -> bytes:
    """Change the text of a graph: numbers, words and bytes."""
    if rng.random() < 0.3:
        return mutated_bytes(code, rng, [code])
    words = code.decode().split(" ")
    for _ in range(rng.randint(1, 3)):
        index, other = rng.randrange(len(words)), rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                words[index] = words[other]
            case 1:
                words[index], words[other] = words[other], words[index]
            case 2:
                digits = [at for at, word in enumerate(words) if any(letter.isdigit() for letter in word)]
                at = rng.choice(digits or [index])
                words[at] = "".join(str(rng.choice((0, 1, 7, 99999999))) if letter.isdigit() else letter for letter in words[at])
            case 3:
                del words[index]
        words = words or [""]
    return " ".join(words).encode()


def packages(target: str) -> Mapping[str, bytes]:
    """Compile the packages of a target, by name. Empty if this machine cannot run the target."""
    import tempfile

    import inlaid
    from inlaid.plugins.registry import default_registry

    registry = default_registry()
    spec = {"x86": "x86:threads=1"}.get(target, target)
    if not registry.probe(registry.target(spec)).available:
        return {}
    targets = [spec] if target in ("x86", "reference") else [spec, "x86:threads=1"]
    models: dict[str, tuple[Any, tuple[str, ...]]] = {
        name: (sample.model(), () if target == "reference" else sample.donate)
        for name, sample in SAMPLES.items()
        if target in sample.targets
    }
    if target == "vta_fpga":
        models = {"product": (_int8_layers(), ())}
    package_bytes = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.inlaid")
        for name, (model, donate) in models.items():
            inlaid.compile(model, targets, donate=donate).save(path)
            package_bytes[name] = path.read_bytes()
        if target == "x86":
            inlaid.compile(models["dense"][0], ["x86:threads=2,cpu=portable"]).save(path)
            package_bytes["portable"] = path.read_bytes()
    return package_bytes


def _int8_layers() -> Any:
    """Two layers of int8 products that VTA takes."""
    from inlaid import ops
    from inlaid.graph.ir import Module, constant, function, var
    from inlaid_runtime.types import TensorType

    x = var("x", TensorType((1, 16, 4, 4), "int8"))
    weights = constant(np.arange(256, dtype=np.int8).reshape(16, 16, 1, 1) % 3)
    return Module({"main": function([x], ops.conv(x, weights, out_dtype="int32"))})


def kinds(corpus: Path) -> dict[str, Kind]:
    """Return all kinds by name."""
    kind_list = (
        OnnxModels(corpus),
        TfliteModels(corpus),
        Packages(corpus, "x86", 12),
        Packages(corpus, "reference", 5),
        Packages(corpus, "opencl", 8),
        Packages(corpus, "vta_fpga", 2),
        Codes(corpus, "opencl", "launch plan opencl", 17, changed_launches),
        Codes(corpus, "vta_fpga", "stream vta_fpga", 3, changed_stream),
        Codes(corpus, "reference", "graph reference", 3, changed_text),
    )
    return {kind.name: kind for kind in kind_list}
