"""The report: what it says of results, and its forms."""

from __future__ import annotations

import importlib.metadata
import json
import xml.etree.ElementTree
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from inlaid.plugins import DeviceStatus, Tolerance
from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry
from inlaid_cli.app import app
from inlaid_conformance.case import LEVELS, Outcome, Result
from inlaid_conformance.report import Report, as_json, as_markdown, as_svg, badge_text, write_report

SCHEMA = json.loads(files("inlaid_conformance").joinpath("report.schema.json").read_text(encoding="utf-8"))
PASSED = Result("operators/agrees[exp-float32]", "operators", Outcome.PASSED)
REFUSED = Result("operators/agrees[det-float32]", "operators", Outcome.SKIPPED, "has no rule for det", claimed=False)
FAILED = Result("codegen/artifacts-are-whole", "codegen", Outcome.FAILED, "it has | no\nformat <here>")
EXPECTED = Result("models/agrees[residual]", "models", Outcome.EXPECTED, "it is slow to converge")


def report(*results: Result, available: bool = True, complete: bool = True) -> Report:
    tolerances = (Tolerance("float32", 1e-2, 1e-3, "exp"),)
    return Report("acme", "acme", "acme-inlaid", "1.2", DeviceStatus(available, "a board"), tolerances, results, complete)


@pytest.mark.parametrize("results", [(), (PASSED,), (PASSED, REFUSED, FAILED, EXPECTED)])
def test_json_keeps_to_its_schema(results: tuple[Result, ...]) -> None:
    document = json.loads(as_json(report(*results)))
    jsonschema.validate(document, SCHEMA)
    assert [level["level"] for level in document["levels"]] == list(LEVELS)
    assert document["conforms"] is (FAILED not in results)


def test_what_is_not_claimed_is_counted_apart() -> None:
    (operators,) = (level for level in json.loads(as_json(report(PASSED, REFUSED)))["levels"] if level["level"] == "operators")
    assert (operators["passed"], operators["skipped"], operators["not claimed"]) == (1, 0, 1)


def test_markdown_names_what_a_reader_asks_for() -> None:
    text = as_markdown(report(PASSED, REFUSED, FAILED, EXPECTED), "acme.svg")
    assert "| exp | float32 |" in text
    assert "* det: has no rule for det" in text
    assert "`codegen/artifacts-are-whole`: it has \\| no format &lt;here>" in text
    assert "it is slow to converge" in text
    assert "| float32 | exp | 0.01 | 0.001 |" in text


def test_an_operator_of_which_examples_were_searched_is_claimed() -> None:
    searched = Result("operators/exercised[det]", "operators", Outcome.PASSED)
    text = as_markdown(report(REFUSED, searched), "acme.svg")
    assert "| det | some, found by search |" in text
    assert "not supported\n\n* det" not in text


def test_an_operator_that_is_wrong_for_a_value_is_not_listed_as_right() -> None:
    wrong = Result("operators/exercised[exp]", "operators", Outcome.FAILED, "exp of nothing")
    assert "| exp | float32 |" not in as_markdown(report(PASSED, wrong), "acme.svg")


@pytest.mark.parametrize(
    ("suite_report", "text"),
    [
        (report(PASSED, REFUSED), "1 passed"),
        (report(PASSED, FAILED), "1 failing"),
        (report(PASSED, complete=False), "1 passed, incomplete"),
    ],
)
def test_the_badge_says_how_it_went(suite_report: Report, text: str) -> None:
    assert badge_text(suite_report) == text
    picture = xml.etree.ElementTree.fromstring(as_svg(suite_report))
    assert picture.attrib["aria-label"] == f"Inlaid conformance: {text}"


def test_files_lie_beside_one_another(tmp_path: Path) -> None:
    written = write_report(report(PASSED), tmp_path / "acme.json")
    assert [path.name for path in written] == ["acme.json", "acme.md", "acme.svg"]
    assert "![1 passed](acme.svg)" in written[1].read_text(encoding="utf-8")


def test_the_command_writes_a_report_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "reference.json"
    result = CliRunner().invoke(app, ["conformance", "--target", "reference", "--only", "plugin/", "--report", str(path)])
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, SCHEMA)
    assert (document["conforms"], document["complete"]) == (True, False)


def test_a_target_that_is_not_there_is_an_error() -> None:
    result = CliRunner().invoke(app, ["conformance", "--target", "nobody"])
    assert "no target 'nobody' is installed" in str(result.exception) and not result.output


def test_a_plugin_that_does_not_load_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("broken", "nothing_of_that_name", GROUP)
    registry = PluginRegistry.discover([point])
    monkeypatch.setattr("inlaid.plugins.registry.default_registry", lambda: registry)
    result = CliRunner().invoke(app, ["conformance", "--target", "broken", "--only", "plugin/loads", "--jobs", "1"])
    assert result.exit_code == 1
    assert "plugin/loads: import: ModuleNotFoundError: No module named 'nothing_of_that_name'" in result.output
    assert "Traceback" not in result.output
    result = CliRunner().invoke(
        app, ["--debug", "conformance", "--target", "broken", "--only", "plugin/loads", "--jobs", "1", "--json"]
    )
    assert result.stderr.startswith("plugin/loads:\nTraceback (most recent call last)")
    jsonschema.validate(json.loads(result.stdout), SCHEMA)


def test_a_case_that_is_not_there_is_an_error() -> None:
    result = CliRunner().invoke(app, ["conformance", "--target", "reference", "--only", "nothing"])
    assert "no case id starts with nothing" in str(result.exception)
