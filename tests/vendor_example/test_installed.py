"""Tests of the vendors' plugins as users have them: installed by pip into a fresh environment, used on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from inlaid_runtime.execution.c_source import find_compiler
from zoo.net import Net

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
PROJECTS = {"acme": FOLDER.parents[1] / "examples" / "acme", "blas": FOLDER / "blas"}


def product():
    """A dense layer."""
    net = Net("dense")
    x = net.node("MatMul", net.input("x", (3, 16)), net.weight("w", (16, 4), 0.5))
    net.output(net.node("Relu", x), "y", (3, 4))
    return net.build()


@pytest.mark.parametrize("name", ["acme", "blas"])
def test_it_installs_and_conforms(tmp_path, inlaid_environment, conformance_options, name):
    if find_compiler() is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    inlaid_environment.pip("install", "--quiet", "--no-build-isolation", PROJECTS[name])

    def inlaid(*arguments):
        return inlaid_environment.run(inlaid_environment.python, "-m", "inlaid", *arguments, folder=tmp_path)

    rows = json.loads(inlaid("targets", "--json"))
    kinds = {"acme": ("acme", "acme_vector"), "blas": ("blas",)}[name]
    assert {row["target"]: row["available"] for row in rows} == dict.fromkeys((*kinds, "reference", "x86"), True)
    # The other levels run for acme where the tutorial does.
    options = ("--only", "package", "--jobs", "1") if name == "acme" else conformance_options()
    inlaid("conformance", "--target", name, "--report", "report.json", *options)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["target"] == name

    onnx.save(product(), tmp_path / "dense.onnx")
    compiled = json.loads(inlaid("compile", "dense.onnx", "--targets", f"{name},x86", "--isolate", "--json"))
    assert compiled["fallbacks"] == []
    assert {region["target"] for region in compiled["regions"]} == ({"blas"} if name == "blas" else {"x86"})
    np.save(tmp_path / "x.npy", np.ones((3, 16), np.float32))
    inlaid("run", "dense.inlaid", "--input", "x=x.npy")
