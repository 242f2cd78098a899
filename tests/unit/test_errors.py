"""Errors and their remedies, in Python and on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import onnx
import pytest

import inlaid
from inlaid.frontends.values import Sources
from inlaid_cli import main
from inlaid_cli.app import app
from inlaid_onnx.node import NeedsStatic
from inlaid_runtime.errors import EXPLAIN, InlaidError, InputError, Remedy, dims_setting, setting

CORE = Path(inlaid.__file__).parent
PLUGINS = sorted(Path(__file__).parents[2].glob("plugins/*/src"))


def test_a_remedy_is_spelt_for_the_interface() -> None:
    remedy = Remedy.join(
        "fix it: ", dims_setting({"input_0": 1, "n": (1, 64), "batch size": None}), " or ", setting("placement", "cost")
    )
    error = InputError("wrong", operator="conv2d", node="m.onnx:c", remedy=remedy)
    message = "wrong (operator conv2d, at m.onnx:c); fix it: "
    assert str(error) == message + 'dims={"input_0": 1, "n": (1, 64), "batch size": ...} or placement="cost"'
    assert error.on_command_line() == message + "--dim input_0=1 --dim n=1:64 --dim 'batch size=SIZE' or --placement cost"
    assert str(InputError("wrong", remedy="mend it")) == InputError("wrong", remedy="mend it").on_command_line() == "wrong; mend it"
    assert str(InputError("wrong", remedy=Remedy.join())) == "wrong"


@pytest.mark.parametrize("sizes", [{"n": 4}, {"n": (1, 8)}])
def test_what_a_remedy_says_is_accepted(sizes: dict[str, int | tuple[int, int]], tmp_path: Path) -> None:
    spelt = dims_setting(sizes)
    (option,) = (param for param in app.commands["compile"].params if param.name == "dims")
    dims = app.commands["compile"].make_context("compile", [*spelt.command.split(), __file__]).params["dims"]
    assert dims == sizes
    assert eval(spelt.python.removeprefix(f"{option.name}=")) == sizes


def test_a_value_that_must_be_known_is_asked_for() -> None:
    error = NeedsStatic("unknown", Sources(("k",), ("n",)), operator="TopK", node="t")
    assert str(error).endswith("give dims={\"n\": ...} and make 'k' an initializer of the model")
    assert error.on_command_line().endswith("give --dim n=SIZE and make 'k' an initializer of the model")


def test_the_command_spells_remedies_as_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(InlaidError) as caught:
        inlaid.compile(path, "reference", dims={"n": (4, 2)})
    assert 'dims={"n": 4}' in str(caught.value)
    with pytest.raises(SystemExit):
        main(["compile", str(path), "--target", "reference", "--dim", f"n={2**63}", "-o", str(tmp_path / "m.inlaid")])
    assert "--dim n=4" in capsys.readouterr().err


def test_a_remedy_survives_an_isolated_compile() -> None:
    remedy = Remedy.join("see ", EXPLAIN)
    assert Remedy(**asdict(remedy)) == remedy


def _texts() -> Iterator[tuple[Path, str]]:
    for folder in (CORE, *PLUGINS):
        for path in folder.rglob("*.py"):
            if not {"bench", "cli", "conformance"} & {*path.parts} and path.name != "errors.py":
                for match in re.finditer(r"remedy=(?:f?\"[^\"]*\"|f?'[^']*')", path.read_text()):
                    yield path, match.group()


def test_remedies_of_the_library_name_no_option() -> None:
    """A plain text serves both interfaces: it can hold neither an option nor an argument."""
    texts = list(_texts())
    assert len(texts) > 20
    wrong = [
        (path.name, text) for path, text in texts if re.search(r"(?<!inlaid partition) --?[a-z]|\b(dims|targets|specialize)=", text)
    ]
    assert not wrong
