"""Warnings of commands."""

from __future__ import annotations

import warnings

import pytest

from inlaid_cli.common import echo_warnings
from inlaid_runtime.errors import InlaidWarning


def test_equal_warnings_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with echo_warnings() as caught:
        for text in ("first", "second", "first", "first"):
            warnings.warn(text, InlaidWarning, stacklevel=1)
    assert capsys.readouterr().err == "first\nsecond\n"
    assert [str(warning.message) for warning in caught] == ["first", "second", "first", "first"]


def test_warnings_of_others_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="of numpy"), echo_warnings():
        warnings.warn("of numpy", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == ""
