"""Every kernel of light models replays from the text of its trace: `benchmarks/replay.py` says so of all of them."""

from __future__ import annotations

import pytest

import replay
from inlaid.plugins.registry import default_registry
from recorded import TARGETS

INSTALLED = [target for target in TARGETS if target.partition(":")[0] in default_registry().kinds()]


@pytest.mark.skipif(not INSTALLED, reason='no plugin that generates code is installed: pip install "inlaid[x86]"')
@pytest.mark.parametrize("model", ["mobilenet_v2_int8_tiny", "bert_base_tiny"])
def test_kernels_replay_to_the_same_program(model):
    kernels = replay.kernels(model, INSTALLED)
    assert len({str(kernel.context.target) for kernel in kernels}) == len(INSTALLED)
    assert [str(kernel) for kernel in kernels if kernel.differs()] == []
    assert sum(kernel.schedule.trace.steps is None for kernel in kernels) < len(kernels) / 4


@pytest.mark.skipif(not INSTALLED, reason='no plugin that generates code is installed: pip install "inlaid[x86]"')
def test_the_benchmark_tells_what_is_slow_and_what_differs(monkeypatch, capsys):
    arguments = ["lstm_tiny", "--target", INSTALLED[0], "--repeat", "1"]
    assert replay.main([*arguments, "--limit", "1000"]) == 0
    assert "replay to the same, 0 take over 1000.0 ms" in capsys.readouterr().out
    assert replay.main([*arguments, "--limit", "0"]) == 1
    monkeypatch.setattr(replay.Kernel, "differs", lambda kernel: True)
    assert replay.main([*arguments, "--limit", "1000"]) == 1
    assert "another program: " in capsys.readouterr().out
