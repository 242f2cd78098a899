"""Graph passes before a model is cut into regions."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.graph import ir
from inlay.graph.ir import Module
from inlay.partition.annotate import Candidate, claims
from inlay.passes.decompose import decompose
from inlay.plugins import Accept


def prepare(module: Module, takers: Sequence[Candidate], listed: Sequence[Candidate], entry: str = "main") -> Module:
    """The module with its entry canonicalised, and decomposed as far as no listed target takes operators whole."""

    def keep(call: ir.Call) -> bool:
        return any(isinstance(claims(taker, call), Accept) for taker in listed)

    return module.with_function(entry, decompose(module[entry], keep))
