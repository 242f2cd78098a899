"""Subclasses of `ModelImportError` that converters raise and the importer handles."""

from __future__ import annotations

from inlaid.frontends.values import Sources
from inlaid_runtime.errors import ModelImportError, Remedy, dims_setting


class NeedsStatic(ModelImportError):
    """A converter needs a static value that depends on `sources`. Importing again with the sources bound may succeed."""

    def __init__(self, message: str, sources: Sources, *, operator: str, node: str) -> None:
        sizes = Remedy.join("give ", dims_setting(dict.fromkeys(sources.dims))) if sources.dims else Remedy.join()
        conjunction = " and " if sources.dims and sources.inputs else ""
        inputs = f"make {', '.join(map(repr, sources.inputs))} an initializer of the model" if sources.inputs else ""
        super().__init__(message, operator=operator, node=node, remedy=Remedy.join(sizes, conjunction, inputs))
        self.sources = sources


class InvalidNode(ModelImportError):
    """A node that is invalid regardless of its inputs: its operator is unknown or unsupported, or it violates ONNX's schema."""
