"""Region passes fire, and kernels get their schedule rules, on every instruction set as recorded.

Values stay right when a pass stops firing, so no other test notices. `python benchmarks/selection.py --check` checks all models.
"""

from __future__ import annotations

import pytest

pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')

import inlaid.lowering.rewrites.unsigned_data
import selection
import zoo


@pytest.mark.slow
@pytest.mark.parametrize("name", selection.TESTED)
def test_passes_and_rules_by_instruction_set(golden, name):
    golden(f"selection/{name}.txt", selection.table(name))


def test_a_pass_that_stops_is_noticed(monkeypatch):
    """Signed activations were multiplied in int16 on processors with VNNI for a while, at twice the time."""
    monkeypatch.setattr(inlaid.lowering.rewrites.unsigned_data, "_speed", lambda data, context: (False, 1.0))
    name = "mobilenet_v2_int8_signed_tiny"
    golden = (selection.GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    stopped = selection.table(name)
    assert "unsigned_data" in golden and "unsigned_data" not in stopped and "conv int16 int16" in stopped


def test_tables_are_of_benchmark_models():
    names = {path.stem for path in selection.GOLDEN.glob("*.txt")}
    assert names.issuperset(selection.TESTED)
    assert names <= {*zoo.MODELS, *selection.TESTED}
