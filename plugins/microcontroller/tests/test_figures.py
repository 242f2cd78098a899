"""What the manifest says of memory and energy, held to what emulated boards do with the models of MLPerf Tiny."""

from __future__ import annotations

from pathlib import Path

import pytest

import inlaid
from inlaid.driver.export import export_folder
from inlaid_microcontroller.boards import BOARDS, Board
from inlaid_microcontroller.boards.accesses import count_accesses, uncounted
from inlaid_microcontroller.boards.emulate import build, missing, run
from inlaid_microcontroller.boards.kernel import build_firmware
from inlaid_microcontroller.export import example, firmware

MODELS = Path(__file__).parents[4] / "shared/models"
CASES = [(name, board) for name in ("ad01_int8", "kws_ref_model") for board in BOARDS]
CASES += [(name, board) for name in ("pretrainedResnet_quant", "vww_96_int8") for board in BOARDS if board.cpu == "cortex-m3"]
"""`make bench-micro` holds all models to their bounds on all boards."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.is_dir(), reason="the models of MLPerf Tiny are not here: see benchmarks/README.md"),
]


@pytest.mark.parametrize(("name", "board"), CASES, ids=lambda item: item if isinstance(item, str) else item.name)
def test_manifests_hold(name: str, board: Board, tmp_path: Path) -> None:
    """Stack is never more than the bound, which is no more than 128 bytes above it; loads and stores are those counted, but for
    spilled registers and the sums that compilers do not keep in registers."""
    if problem := missing(board):
        pytest.skip(problem)
    executable = inlaid.compile(MODELS / f"{name}.tflite", [f"microcontroller:cpu={board.cpu}"])
    manifest = export_folder(executable.package, tmp_path, "model").facts
    source, inputs = build_firmware(firmware(executable, "model")), [example(spec).tobytes() for spec in executable.inputs]
    (tmp_path / "board").mkdir()
    program = build(source, board, tmp_path / "board")
    stack_bytes = run(source, program, board, inputs).model_stack
    assert manifest["stack_is"] == "bound"
    assert stack_bytes <= manifest["stack_bytes"] <= stack_bytes + 128
    if uncounted(board) is None:
        counted = count_accesses(source, program, board, inputs)
        assert 0.6 < manifest["loads"] / counted.loads < 1.05
        assert 0.3 < manifest["stores"] / counted.stores < 1.05
