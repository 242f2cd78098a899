"""Commands of other distributions: one that cannot be loaded is an error of its own alone."""

from __future__ import annotations

import click
import pytest

from inlaid_cli import app
from inlaid_runtime.errors import PluginError
from inlaid_runtime.plugins.entry_points import InstalledEntryPoint


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("inlaid_absent.command:command", "ModuleNotFoundError: No module named 'inlaid_absent'"),
        ("inlaid_cli.app:absent", "AttributeError: module 'inlaid_cli.app' has no attribute 'absent'"),
        ("inlaid_cli.app", "expected a click.Command, got module"),
    ],
)
def test_a_command_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, value: str, problem: str) -> None:
    points = (*app.installed(app.GROUP), InstalledEntryPoint("absent", value, app.GROUP))
    monkeypatch.setattr(app, "installed", lambda group: points)
    group = click.Group("inlaid", commands=app._Commands())
    with click.Context(group) as context:
        text = group.get_help(context)
        assert "Print the IR of MODEL" in text and "Unusable: " in text
    with pytest.raises(PluginError) as caught:
        group.main(["absent", "model.onnx", "--help"], standalone_mode=False)
    assert caught.value.message == f"cannot load the command absent from {value!r}: {problem}"
    assert "install the distribution again" in str(caught.value)
