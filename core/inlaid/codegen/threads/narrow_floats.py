"""Replace conversions of narrow floats by calls, for languages with conversion functions."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter

DECODE, ENCODE = "decode", "encode"
"""Prefixes of the calls' names in printed kernels; a dot and the name of the narrow float follow."""


def as_functions(program: ir.LoopProgram, converted: frozenset[str]) -> ir.LoopProgram:
    """Replace casts of narrow floats by calls:

    cast(float32, bitcast(float16, code))    becomes    call "decode.float16"(code)
    bitcast(uint16, cast(float16, value))    becomes    call "encode.float16"(value)

    `legalize` produces the left-hand forms for the `converted` narrow floats.
    """

    def function(node: ir.Expr) -> ir.Expr | None:
        match node:
            case ir.Cast(a=ir.Bitcast(dtype=dtype, a=code)) if dtype.name in converted:
                return ir.CallIntrinsic(node.dtype, f"{DECODE}.{dtype.name}", (code,))
            case ir.Bitcast(a=ir.Cast(dtype=dtype, a=value)) if dtype.name in converted:
                return ir.CallIntrinsic(node.dtype, f"{ENCODE}.{dtype.name}", (value,))
        return None

    return Rewriter(expr=function).program(program) if converted else program
