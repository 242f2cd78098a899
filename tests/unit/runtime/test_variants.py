"""Regions with variants for machines that have more: which is loaded, and how packages hold them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.package_files import redescribe, rewrite

from inlaid_runtime.artifact.plan import Invoke, Plan
from inlaid_runtime.artifact.variants import joined
from inlaid_runtime.errors import PackageError, PluginError, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.package import read_package, write_package

WEIGHTS = np.arange(100, dtype=np.float32)


@pytest.fixture
def versions(lab, value):
    """A model whose region has versions that require nothing, `fma`, and `fma` with `amx`; the machine has `fma`."""

    def build(requires=((), ("fma",), ("fma", "amx")), constants=(WEIGHTS, WEIGHTS[::-1], WEIGHTS)):
        artifacts = []
        for number, (required, array) in enumerate(zip(requires, constants, strict=True)):
            symbol = f"version{number}"

            def fill(y, number=number):
                y[...] = number

            lab.region(symbol, fill, [], [((), "float32")], requires=required, constants={"w": array.copy()})
            artifacts.append(replace(lab.artifacts.pop(), symbol="main_region", workspace={"": 64 * number}))
        lab.artifacts.append(joined(artifacts))
        return lab.package(Plan("main", (value("output", ()),), (), (("y", 0),), (Invoke("main_region", (), (0,)),)))

    return build


def chosen(executable) -> int:
    return int(executable.run({})["y"])


def test_the_best_that_fits_is_loaded(lab, versions):
    package = versions()
    assert [variant.requires for variant in package.artifacts[0].variants] == [("fma", "amx"), ("fma",)]
    executable = Executable(package, registry=lab.registry)
    assert chosen(executable) == 1 and executable.workspace_bytes({}) == 64
    assert [list(loaded["w"]) for loaded in lab.loads] == [list(WEIGHTS[::-1])]


def test_the_artifact_itself_comes_last(lab, versions):
    assert chosen(Executable(versions(((), ("avx",), ("amx",))), registry=lab.registry)) == 0


def test_where_none_fits_the_least_demanding_is_named(lab, versions):
    with pytest.raises(Unsupported, match=r"region main_region cannot run on lab here: this machine lacks sse$"):
        Executable(versions((("sse",), ("avx",), ("amx",))), registry=lab.registry)


def test_packages_hold_variants_and_equal_weights_once(lab, versions, tmp_path):
    package, path = versions(), tmp_path / "model.inlaid"
    write_package(package, path)
    again = read_package(path)
    assert again.weight_bytes == 2 * WEIGHTS.nbytes
    (old,), (new,) = package.artifacts, again.artifacts
    for one, other in zip((old, *old.variants), (new, *new.variants), strict=True):
        assert replace(one, constants={}, variants=()) == replace(other, constants={}, variants=())
        assert list(one.constants["w"]) == list(other.constants["w"])
    assert chosen(Executable(again, registry=lab.registry)) == 1
    write_package(again, tmp_path / "again.inlaid")
    assert path.read_bytes() == (tmp_path / "again.inlaid").read_bytes()


def test_weights_in_memory_are_aligned_once(lab, versions):
    package = Executable(versions(), registry=lab.registry).package
    (artifact,) = package.artifacts
    assert artifact.constants["w"] is artifact.variants[0].constants["w"]
    assert package.weight_bytes == 2 * WEIGHTS.nbytes


def nested(variant):
    variant["variants"] = [dict(variant)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda variant: variant.update(sha256="0" * 64), "the hash of code/2 does not match"),
        (nested, "a variant must not have variants"),
    ],
)
def test_hostile_variants(lab, versions, tmp_path, change, message):
    path = tmp_path / "model.inlaid"
    write_package(versions(), path)
    rewrite(path, lambda manifest: change(manifest["regions"][0]["variants"][1]))
    with pytest.raises(PackageError, match=message):
        Executable(read_package(path), registry=lab.registry)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda variant: variant.update(symbol="other"), "a variant must have the same symbol and signature"),
        (lambda variant: variant["signature"]["outputs"].clear(), "a variant must have the same symbol and signature"),
        (lambda variant: variant.update(workspace={"": -1}), "is negative"),
    ],
)
def test_hostile_descriptions_of_variants(lab, versions, tmp_path, change, message):
    path = tmp_path / "model.inlaid"
    write_package(versions(), path)
    redescribe(path, "code/1", change)
    with pytest.raises(PackageError, match=message):
        Executable(read_package(path), registry=lab.registry)


def test_equal_versions_are_one(versions):
    (artifact,) = versions().artifacts
    plain = replace(artifact, variants=())
    assert joined([plain]) is plain
    assert joined([plain, replace(plain, constants={"w": WEIGHTS.copy()})]) == plain
    with pytest.raises(PluginError, match="different signatures"):
        joined([plain, replace(plain, signature=replace(plain.signature, outputs=()))])
