"""Packages: what is written is read back, and what is damaged or hostile is refused with one clear error."""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import struct
import zipfile

import numpy as np
import pytest
from tests.package_files import composed, described, joined, read_members, redescribe, rewrite, with_code
from tests.plugin_registry import both_halves

from inlaid_runtime import Executable, Package
from inlaid_runtime.arith import SizeVar, ceildiv, compare, logical_and, logical_not, logical_or, maximum, minimum, select
from inlaid_runtime.artifact.plan import Branch, Call, Invoke, Loop, Move, Plan, Program
from inlaid_runtime.errors import InlaidError, OutputError, PackageError
from inlaid_runtime.execution import package as package_module
from inlaid_runtime.execution.codec import decode, encode
from inlaid_runtime.execution.package import PAGE, read_package, write_package
from inlaid_runtime.types import DTYPES

N, M = SizeVar("n", 1, 64), SizeVar("?m", 0, SizeVar("n", 1, 64) * 2)


@pytest.fixture
def saved(chain, tmp_path):
    """The path of a sound package, and its executable."""
    model = chain(SizeVar("n"))
    path = tmp_path / "model.inlaid"
    model.save(path)
    return path, model


def reload(path, model, **options) -> Executable:
    return Executable(read_package(path, **options), registry=model_registry(model))


def model_registry(model):
    """The registry of the test's own target, from the module that its fixture made."""

    from inlaid.plugins.registry import PluginRegistry

    return PluginRegistry.discover(both_halves("lab", "inlaid_lab_plugin"))


def test_a_package_runs_as_the_model_did(saved):
    path, model = saved
    again = reload(path, model)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(again.run({"x": x})["y"], model.run({"x": x})["y"])
    assert again.package.program == model.package.program
    assert again.regions == model.regions
    for old, new in zip(model.package.artifacts, again.package.artifacts, strict=True):
        assert (old.signature, old.code, old.workspace, old.requires) == (
            new.signature,
            new.code,
            new.workspace,
            new.requires,
        )


def test_equal_models_give_equal_bytes(saved, tmp_path):
    path, model = saved
    model.save(tmp_path / "again.inlaid")
    reload(path, model).save(tmp_path / "from_loaded.inlaid")
    assert path.read_bytes() == (tmp_path / "again.inlaid").read_bytes() == (tmp_path / "from_loaded.inlaid").read_bytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["again.inlaid", "from_loaded.inlaid", "model.inlaid"]


def test_weights_are_mapped_aligned_and_stored_once(lab, value, tmp_path):
    big = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    lab.region("one", lambda x: x, [((2,), "float32")], [((2,), "float32")], constants={"a": big, "b": big.copy(), "c": big[:3]})
    plan = Plan(
        "main",
        (
            value("input", (2,)),
            value("arena", (2,)),
            value("constant", (1000,), name="w"),
            value("output", (1000,)),
            value("constant", (), "bfloat16", name="s"),
        ),
        (("x", 0),),
        (("y", 3),),
        (Invoke("one", (0,), (1,)), Move(2, 3)),
        64,
    )
    weights = {"w": big, "s": np.asarray(1.5, DTYPES["bfloat16"].numpy)}
    path = tmp_path / "m.inlaid"
    write_package(lab.package(plan, weights=weights), path)
    assert path.stat().st_size < 2 * PAGE + big.nbytes + 4000
    with zipfile.ZipFile(path) as archive:
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        assert archive.testzip() is None
    read = read_package(path)
    constants = read.artifacts[0].constants
    for array in (*constants.values(), *read.weights.values()):
        assert array.__array_interface__["data"][0] % 64 == 0
        assert not array.flags.writeable
    assert np.shares_memory(constants["a"], constants["b"])
    assert np.shares_memory(constants["a"], read.weights["w"])
    np.testing.assert_array_equal(read.weights["w"], big)
    assert read.weights["s"] == 1.5
    base = read.weights["w"].base
    while not isinstance(base, (memoryview, mmap.mmap)):
        base = base.base
    assert isinstance(base if isinstance(base, mmap.mmap) else base.obj, mmap.mmap)


def test_every_element_type_survives(lab, value, tmp_path):
    weights = {}
    for name, element in DTYPES.items():
        if name == "string":
            data = np.array([["a", ""], ["\u00e4\u20ac", "\udcff"]], object)
        else:
            data = np.arange(4).astype(element.numpy).reshape(2, 2)
        weights[name] = data
        weights[f"{name} empty"] = data[:0]
        weights[f"{name} scalar"] = np.array(data[1, 0], data.dtype)
    path = tmp_path / "m.inlaid"
    write_package(Package(Program({}, ()), (), weights), path)
    read = read_package(path).weights
    assert set(read) == set(weights)
    for name, data in weights.items():
        assert read[name].dtype == data.dtype
        assert read[name].shape == data.shape
        assert repr(read[name].tolist()) == repr(data.tolist())


DIMS = [
    0,
    7,
    N,
    M,
    N + 1,
    N * M * 3,
    ceildiv(N, 4),
    N % 4,
    minimum(N, 3),
    maximum(N, M),
    select(compare("<", N, 3), N, 5),
    logical_and(compare("<=", N, 3), compare("!=", N, 2)),
    logical_or(compare("==", N, 3), logical_not(compare("<", N, 2))),
]


@pytest.mark.parametrize("dim", DIMS, ids=repr)
def test_sizes_survive(dim, value):
    plan = Plan("p", (value("arena", (dim, 1), offset=dim),), (), (), (), dim)
    again = decode(Plan, json.loads(json.dumps(encode(plan))), "plan")
    assert again == plan
    shape = again.values[0].shape
    if dim is M:
        assert shape[0].upper == M.upper
    if dim is N:
        assert (shape[0].lower, shape[0].upper) == (1, 64)


def test_every_instruction_survives():
    steps = (
        Invoke("a", (0,), (1, 2)),
        Call("p", (), (1,)),
        Branch(0, "p", "q", (1,), ()),
        Loop("p", None, 3, (1,), (2,), (), (4,)),
        Move(1, 2),
    )
    plan = Plan("p", (), (("x", 0),), (("y", 1),), steps)
    assert decode(Plan, json.loads(json.dumps(encode(plan))), "plan") == plan


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    path, model = saved
    before = path.read_bytes()
    monkeypatch.setattr(package_module._Tensors, "write", lambda self, file: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OutputError, match=r"cannot write .*: No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == ["model.inlaid"]
    with pytest.raises(OutputError, match=r"cannot write .*: No such file.*; create the folder"):
        model.save(path.parent / "nowhere" / "model.inlaid")


def test_a_package_beyond_four_gigabytes_has_the_long_header(saved, monkeypatch):
    path, model = saved
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 0)
    model.save(path)
    monkeypatch.undo()
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(reload(path, model).run({"x": x})["y"], model.run({"x": x})["y"])


def test_the_expected_hash(saved):
    path, model = saved
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    reload(path, model, expect_sha256=digest.upper())
    with pytest.raises(PackageError, match=f"expected SHA-256 00.*, got {digest}"):
        reload(path, model, expect_sha256="00" * 32)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PackageError, match=r"cannot read .*: No such file"):
        read_package(tmp_path / "none.inlaid")
    with pytest.raises(PackageError, match=r"cannot read .*: Is a directory"):
        read_package(tmp_path)
    (tmp_path / "empty.inlaid").write_bytes(b"")
    with pytest.raises(PackageError, match="too short"):
        read_package(tmp_path / "empty.inlaid")
    (tmp_path / "text.inlaid").write_bytes(b"no zip file at all, only some text")
    with pytest.raises(PackageError, match="not a zip file"):
        read_package(tmp_path / "text.inlaid")


# --- hostile packages -------------------------------------------------------------------------------------------------------


def refuse(path, model, message):
    with pytest.raises(PackageError, match=message):
        reload(path, model)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "code/../../evil", "code/00", "C:\\evil", "weights.bin/", "code/0\n", "MANIFEST.JSON"]
)
def test_members_that_escape_or_are_unknown(saved, name):
    path, model = saved
    path.write_bytes(composed([*read_members(path.read_bytes()).items(), (name, b"evil")]))
    refuse(path, model, "it has an unknown member")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members(saved):
    path, model = saved
    path.write_bytes(composed([*read_members(path.read_bytes()).items(), ("code/0", b"other")]))
    refuse(path, model, "it has two members 'code/0'")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_inflate(saved, compression):
    path, model = saved
    path.write_bytes(
        composed([(name, data + bytes(1 << 20)) for name, data in read_members(path.read_bytes()).items()], compression)
    )
    refuse(path, model, "is compressed or encrypted")


def test_missing_members(saved):
    path, model = saved
    members = read_members(path.read_bytes())
    for lost, message in (("manifest.json", "no manifest"), ("weights.bin", "no manifest"), ("code/0", "unknown code member")):
        path.write_bytes(composed([item for item in members.items() if item[0] != lost]))
        refuse(path, model, message)
    path.write_bytes(bytes(PAGE) + composed([]))
    refuse(path, model, "no manifest")


def central(data):
    """Offset of the first entry of the central directory."""
    return struct.unpack("<L", data[-6:-2])[0]


@pytest.mark.parametrize(
    ("offset", "form", "number", "message"),
    [
        (8, "<H", 1, "compressed or encrypted"),
        (8, "<H", 8, "compressed or encrypted"),
        (10, "<H", 8, "compressed or encrypted"),
        (16, "<L", 12345, "checksum"),
        (20, "<L", 1 << 20, "compressed or encrypted"),
        (42, "<L", 1 << 30, "outside of the file"),
        (42, "<L", 3, "contradicts"),
    ],
)
def test_a_directory_that_lies(saved, offset, form, number, message):
    path, model = saved
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, central(data) + offset, number)
    path.write_bytes(data)
    refuse(path, model, message)


def test_sizes_that_lie(saved):
    path, model = saved
    data = bytearray(path.read_bytes())
    for offset in (20, 24):
        struct.pack_into("<L", data, central(data) + offset, 1 << 20)
    path.write_bytes(data)
    refuse(path, model, "contradicts")
    for offset in (18, 22):
        struct.pack_into("<L", data, offset, 1 << 20)
    path.write_bytes(data)
    refuse(path, model, "beyond the end|checksum|overlap")


def test_members_that_overlap(saved):
    """Two directory entries for the same bytes."""
    path, model = saved
    data = bytearray(path.read_bytes())
    start = central(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        codes = [info for info in archive.infolist() if info.filename.startswith("code/")]
    first, second = codes
    position = data.index(b"code/1", start) - 46
    local = data.index(b"code/1")
    struct.pack_into("<L", data, position + 42, first.header_offset)
    path.write_bytes(data)
    refuse(path, model, "contradicts")
    data[first.header_offset + 30 : first.header_offset + 36] = b"code/1"
    data[data.index(b"code/0", start) + 0 : data.index(b"code/0", start) + 6] = b"code/1"
    path.write_bytes(data)
    assert local > 0
    assert second.filename == "code/1"
    refuse(path, model, "two members|overlap|checksum|contradicts")


def test_weights_off_the_page(saved):
    path, model = saved
    path.write_bytes(b"prefix" + path.read_bytes())
    refuse(path, model, "is not page-aligned")


def test_damaged_weights_and_code(saved):
    path, model = saved
    sound = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            data = bytearray(sound)
            data[sound.index(archive.read(info), info.header_offset + 30)] ^= 1
            path.write_bytes(data)
            refuse(path, model, f"the checksum of {info.filename}")


def edit(*keys):
    """A change of a manifest: the last of `keys` replaces what the others lead to."""

    def change(manifest):
        *way, last, new = keys
        node = manifest
        for key in way:
            node = node[key]
        node[last] = new(node[last]) if callable(new) else new

    return change


CONSTRAINT = {
    "condition": ["size", "zz", 0, None], "value": 0, "what": "it", "expected": "small", "operator": "conv", "node": "conv1",
}  # fmt: skip
HOSTILE = {
    "not json": (lambda m: b"{", "not JSON"),
    "not utf-8": (lambda m: b'"\xff"', "not JSON"),
    "deep json": (lambda m: b"[" * 200_000 + b"]" * 200_000, "not JSON|not that of a package"),
    "a list": (lambda m: b"[]", "not that of a package"),
    "twice the same field": (lambda m: b'{"format": "inlaid-package", "format": 1}', "a field occurs twice"),
    "infinity": (lambda m: b'{"format": Infinity}', "is not a number"),
    "huge number": (lambda m: b'{"format": ' + b"9" * 10_000 + b"}", "not JSON"),
    "another format": (edit("format", "zip"), "not that of a package"),
    "a newer version": (edit("version", 4), "expected package version 3, got 4"),
    "an unknown field": (edit("more", 1), "unknown"),
    "a lost field": (lambda m: m.pop("plans") and None, "'plans' is missing"),
    "plans of the wrong type": (edit("plans", {}), "plans: expected list, got dict"),
    "no main": (edit("plans", []), "no plan named main"),
    "a plan's constraint on a size that nobody has": (edit("plans", 0, "constraints", [CONSTRAINT]), "zz has no value at run time"),
    "a plan's constraint without words": (edit("plans", 0, "constraints", [{**CONSTRAINT, "what": 3}]), "expected str, got int"),
    "two plans of a name": (edit("plans", lambda p: p + p), "plans must have different names"),
    "unknown dtype": (edit("tensors", 0, "dtype", "float31"), "'float31' is not an element type"),
    "dtype that is an attribute": (edit("tensors", 0, "dtype", "__class__"), "is not an element type"),
    "dtype of another width": (edit("tensors", 0, "dtype", "float32"), "cannot have 40 bytes"),
    "huge shape": (edit("tensors", 0, "shape", [1 << 40, 1 << 40]), "cannot have 40 bytes"),
    "shape of overflow": (edit("tensors", 0, "shape", [1 << 61, 8]), "cannot have 40 bytes"),
    "negative shape": (edit("tensors", 0, "shape", [-5]), "out of range"),
    "shape of floats": (edit("tensors", 0, "shape", [5.0]), "expected int, got float"),
    "shape of bools": (edit("tensors", 0, "shape", [True]), "expected int, got bool"),
    "too many dimensions": (edit("tensors", 0, "shape", [1] * 65), "65 dimensions"),
    "offset outside": (edit("tensors", 0, "offset", 1 << 30), "out of range"),
    "offset before": (edit("tensors", 1, "offset", 0), "out of range"),
    "offset off alignment": (edit("tensors", 1, "offset", lambda x: x + 4), "not a multiple of 64|out of range"),
    "bytes beyond the end": (edit("tensors", 1, "bytes", 1 << 30), "out of range"),
    "string tensor": (edit("tensors", 0, lambda t: {**t, "dtype": "string"}), "strings"),
    "string tensor of many": (edit("tensors", 0, lambda t: {**t, "dtype": "string", "shape": [1 << 50]}), "strings"),
    "weight that is none": (edit("weights", "w", 99), "out of range"),
    "weight of another type": (edit("weights", "w", 0), "constant 'w' has another type"),
    "code that is none": (edit("regions", 0, "code", "code/9"), "unknown code member"),
    "code in the manifest": (edit("regions", 0, "code", "manifest.json"), "unknown code member"),
    "hash of other code": (edit("regions", 0, "sha256", "0" * 64), "the hash of code/0 does not match"),
    "region without target": (edit("regions", 0, "target", None), "NoneType|null"),
    "constants beyond those of the code": (
        edit("regions", 0, "constants", lambda c: c + c),
        "expected 1 constants of different names",
    ),
    "constant that is none": (edit("regions", 0, "constants", [-1]), "out of range"),
    "description in the manifest": (edit("regions", 0, "workspace", {"": 0}), "'workspace' is unknown"),
    "endless workspace": (edit("plans", 0, "workspace", 1 << 61), None),
    "value outside the arena": (edit("plans", 0, "values", 1, "offset", 1 << 20), None),
    "value before the arena": (edit("plans", 0, "values", 1, "offset", -64), "is negative"),
    "unknown storage": (edit("plans", 0, "values", 1, "storage", "disk"), "'disk' is not one of"),
    "unbound size": (edit("plans", 0, "values", 1, "shape", [["size", "q", 0, None], 3]), "no value at run time"),
    "unknown instruction": (edit("plans", 0, "instructions", 0, "do", "system"), "unknown instruction"),
    "region that is none": (edit("plans", 0, "instructions", 0, "symbol", "nope"), "unknown region 'nope'"),
    "value that is none": (edit("plans", 0, "instructions", 0, "inputs", [17]), "unknown value 17"),
    "negative value": (edit("plans", 0, "instructions", 0, "inputs", [-1]), "unknown value -1"),
    "read before write": (edit("plans", 0, "instructions", 0, "inputs", [1]), "read before it is written"),
    "write to a constant": (edit("plans", 0, "instructions", 0, "outputs", [3]), "cannot be written"),
    "write twice": (edit("plans", 0, "instructions", 1, "outputs", [1]), "is written twice"),
    "too few inputs": (edit("plans", 0, "instructions", 1, "inputs", [1]), "expected 2 values, got 1"),
    "output never written": (edit("plans", 0, "instructions", lambda i: i[:1]), "read before it is written"),
    "another element type": (edit("plans", 0, "values", 1, "dtype", "float64"), "expected a value of type"),
    "smaller arena": (edit("plans", 0, "workspace", 0), None),
}


DESCRIPTIONS = {
    "a constraint on a size that nobody has": (edit("constraints", [CONSTRAINT]), "zz has no value at run time"),
    "a constraint without words": (edit("constraints", [{**CONSTRAINT, "what": 3}]), "expected str, got int"),
    "a constraint of the first version": (edit("constraints", [1]), "expected dict, got int"),
    "two regions of a name": (edit("symbol", "scale"), "same symbol|facts on regions"),
    "another code format": (edit("format", "elf"), None),
    "alias that is none": (edit("aliases", [[0, 7]]), "does not name an output and an input"),
    "size source that is none": (edit("signature", "dims", 0, "input", 5), "which does not exist"),
    "axis that is none": (edit("signature", "dims", 0, "axis", -1), "which does not exist"),
    "rank of a region": (edit("signature", "inputs", 0, "shape", [3]), "is axis|of rank"),
    "size of another region": (edit("workspace", {"": ["size", "z", 0, None]}), "no value at run time"),
    "negative workspace": (edit("workspace", {"": -1}), "is negative"),
    "region shape": (edit("signature", "outputs", 0, "shape", [["size", "n", 0, None], 300]), None),
    "description that is not json": (lambda d: b"{", "the description in code/0 is not JSON"),
    "description of nothing": (lambda d: b"", "the description in code/0 is not JSON"),
    "description that is a list": (lambda d: b"[]", "code/0: expected dict, got list"),
    "description without constants": (lambda d: d.pop("constants") and None, "'constants' is missing"),
    "description of kernels without names": (edit("kernels", [{}]), "is missing"),
    "constant of another type": (
        edit("constants", 0, "dtype", "float32"),
        "constant 'c' must be a tensor of float32\\[5\\], got float64",
    ),
    "constant of another shape": (
        edit("constants", 0, "shape", [1, 5]),
        "must be a tensor of float64\\[1, 5\\], got float64\\[5\\]",
    ),
    "constant twice": (edit("constants", lambda c: c + c), "expected 2 constants of different names, got 1"),
}
"""Changes of the description in the first code member, which its hash covers."""


def deep_size(depth):
    dim = ["size", "n", 0, None]
    for _ in range(depth):
        dim = ["add", dim, 1]
    return dim


SIZES = {
    "deep size": (deep_size(150), "nested too deeply"),
    "very deep size": (deep_size(900), "nested too deeply|not JSON"),
    "unknown size operator": (["exec", 1, 2], "expected an expression"),
    "size of three": (["add", 1, 2, 3], "expected an expression"),
    "text as a size": ("n", "expected list, got str"),
    "null as a size": (None, "NoneType|null"),
    "division by zero": (["floordiv", ["size", "n", 0, None], 0], None),
    "negative at run time": (["add", ["size", "n", 0, None], -100], None),
    "beyond 64 bits": (["mul", ["size", "n", 0, None], 1 << 61], None),
    "out of range": (1 << 70, "out of range"),
    "unknown comparison": (["compare", "is", 1, 2], "expected an expression"),
}
HOSTILE |= {name: (edit("plans", 0, "workspace", dim), message) for name, (dim, message) in SIZES.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests(saved, name):
    path, model = saved
    change, message = HOSTILE[name]
    rewrite(path, change)
    if message is not None:
        refuse(path, model, message)
    else:
        # Such a package is found out by the machine or by the run.
        with pytest.raises(InlaidError):
            reload(path, model).run({"x": np.ones((4, 3), np.float32)})


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_hostile_descriptions(saved, name):
    path, model = saved
    change, message = DESCRIPTIONS[name]
    redescribe(path, "code/0", change)
    if message is not None:
        refuse(path, model, message)
    else:
        with pytest.raises(InlaidError):
            reload(path, model).run({"x": np.ones((4, 3), np.float32)})


def test_a_description_is_under_the_hash_of_its_code(saved):
    path, model = saved
    members = read_members(path.read_bytes())
    description, code = described(members["code/0"])
    description["workspace"] = {"": 0}
    path.write_bytes(composed({**members, "code/0": joined(description, code)}.items()))
    refuse(path, model, r"regions\[0\]: the hash of code/0 does not match")
    path.write_bytes(composed(with_code(members, "code/0", b"short").items()))
    refuse(path, model, "code/0 must have at least 8 bytes, got 5")
    path.write_bytes(composed(with_code(members, "code/0", b"\xff" * 9).items()))
    refuse(path, model, "code/0.length: an integer is out of range")


def test_an_unknown_target_says_what_to_install(saved):
    path, model = saved
    rewrite(path, edit("regions", 0, "target", "vta_fpga"))
    with pytest.raises(InlaidError, match=r"no target 'vta_fpga' is installed.*installed: lab"):
        reload(path, model)
