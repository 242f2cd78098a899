"""Options, artifacts that are damaged, and what a profile says."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import Module, constant, function, var
from inlaid_runtime.errors import TargetError, Unsupported
from inlaid_runtime.types import TensorType
from inlaid_vta_fpga.image import Header, Image
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config
from inlaid_vta_fpga.options import VtaOptions


def image() -> Image:
    header = Header(Config(), 4 * PAGE_BYTES, 2 * PAGE_BYTES, 1, PAGE_BYTES, 1, (), (), ())
    return Image(header, bytes(16), bytes(4))


def test_code_round_trips() -> None:
    assert Image.from_bytes(image().to_bytes()) == image()


@pytest.mark.parametrize("length", [0, 3, 8, 40, -1, -5])
def test_truncated_code_is_refused(length: int) -> None:
    with pytest.raises(Unsupported, match="malformed vta-stream code"):
        Image.from_bytes(image().to_bytes()[:length])


@pytest.mark.parametrize(
    "changes",
    [{"size": PAGE_BYTES}, {"size": 1 << 40}, {"stream": 0}, {"stream": 100}, {"uops": 4 * PAGE_BYTES}, {"count": 2}],
    ids=str,
)
def test_addresses_are_checked(changes: dict[str, int]) -> None:
    damaged = replace(image(), header=replace(image().header, **changes))  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="expected"):
        Image.from_bytes(damaged.to_bytes())


def test_a_hostile_configuration_is_refused() -> None:
    """At once: a buffer of 2^100000 bytes takes neither time nor memory."""
    code = image().to_bytes().replace(b'"log_acc_buff":17', b'"log_acc_buff":100000')
    (length,) = struct.unpack_from("<4xI", code)
    with pytest.raises(Unsupported, match="log_acc_buff from 0 to 28, found 100000"):
        Image.from_bytes(struct.pack("<4sI", code[:4], length + 4) + code[8:])


@pytest.mark.parametrize(
    "options", [{"simulator": "none"}, {"threads": 3}, {"slots": 0}, {"log_batch": 1}, {"log_inp_buff": 2}], ids=str
)
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(TargetError, match=r"expected|must be"):
        VtaOptions(**options)  # type: ignore[arg-type]


def test_a_profile_has_the_clock_of_the_timing_simulator() -> None:
    x = var("x", TensorType((1, 16, 8, 8), "int8"))
    weights = constant(np.ones((16, 16, 1, 1), np.int8))
    module = Module({"main": function([x], ops.conv(x, weights, out_dtype="int32"))})
    data = {"x": np.ones((1, 16, 8, 8), np.int8)}
    executable = inlaid.compile(module, ["vta_fpga:simulator=timing"])
    rows = [row for row in executable.profile(data).rows() if row.target.startswith("vta_fpga")]
    # At least a cycle of 10 ns for each of 64 products, resets and bias products, and 3 shifts.
    assert len(rows) == 1 and 6 * 64 * 1e-8 < rows[0].seconds < 1e-4
