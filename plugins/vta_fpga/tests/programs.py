"""Random configurations and instructions."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from inlaid_runtime.errors import TargetError
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import GEMM, LOAD, Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Load, Store, Uop

FLAGS = st.builds(Flags, *[st.booleans()] * 4)


@st.composite
def configs(draw):
    """Legal configurations, the default among them."""
    log_block = draw(st.integers(0, 5))
    log_batch = draw(st.integers(0, 2))
    indices = [draw(st.integers(1, 14)) for _ in range(3)]
    try:
        return Config(
            log_batch=log_batch,
            log_block=log_block,
            log_uop_buff=2 + draw(st.integers(1, 13)),
            log_inp_buff=indices[0] + log_batch + log_block,
            log_wgt_buff=indices[1] + 2 * log_block,
            log_acc_buff=indices[2] + log_batch + log_block + 2,
        )
    except TargetError:
        return Config()


def widths(config, opcode):
    """Strategies of the unsigned values of an instruction's fields, by name."""
    return {name: st.integers(0, (1 << width) - 1) for name, _, width in Encoding(config).fields[opcode]}


def instructions(config):
    """Instructions whose fields fit, else arbitrary."""
    move, gemm = (widths(config, opcode) for opcode in (LOAD, GEMM))
    fields = [move[name] for name in ("sram_base", "dram_base", "y_size", "x_size", "x_stride")]
    pads = [move[name] for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
    loops = [gemm[name] for name in ("uop_begin", "uop_end", "iter_out", "iter_in")]
    factors = {name: st.tuples(gemm[f"{name}_factor_out"], gemm[f"{name}_factor_in"]) for name in ("dst", "src", "wgt")}
    imm = st.none() | st.integers(-0x8000, 0x7FFF)
    memory = st.sampled_from([memory for memory in Memory if memory is not Memory.OUT])
    return st.one_of(
        st.builds(Load, memory, *fields, *pads, FLAGS),
        st.builds(Store, *fields, FLAGS),
        st.builds(Gemm, *loops, *factors.values(), st.booleans(), FLAGS),
        st.builds(Alu, st.sampled_from(AluOp), *loops, factors["dst"], factors["src"], imm, FLAGS),
        st.builds(Finish, FLAGS),
    )


def uops(config):
    """Micro-ops whose fields fit."""
    return st.builds(Uop, *(st.integers(0, (1 << width) - 1) for _, _, width in Encoding(config).uop_fields))


@st.composite
def with_tokens(draw, code):
    """A copy of a stream with random tokens from instructions to later ones of a neighboring module: it runs in its own order."""
    code = list(code)
    for _ in range(draw(st.integers(0, 12 if len(code) > 1 else 0))):
        first, last = sorted(draw(st.tuples(st.integers(0, len(code) - 1), st.integers(0, len(code) - 1))))
        distance = code[last].module - code[first].module
        if abs(distance) == 1:
            push, pop = ("push_next", "pop_prev") if distance == 1 else ("push_prev", "pop_next")
            if not getattr(code[first].flags, push) and not getattr(code[last].flags, pop):
                for number, flag in (first, push), (last, pop):
                    code[number] = dataclasses.replace(code[number], flags=dataclasses.replace(code[number].flags, **{flag: True}))
    return code
