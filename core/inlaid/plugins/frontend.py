"""Frontends in the plugin contract: a model format, how to recognize it, and how to import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.plugins.entry_points import installed_version
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

HEAD_BYTES = 64
"""Number of leading bytes of a model that are passed to `Frontend.recognizes`."""


@dataclass(frozen=True)
class ModelSource:
    """A model to import.

    `model` is a file path, bytes, or a library object such as an `onnx.ModelProto`. `dims` fixes symbolic dimensions by name, or
    bounds them inclusively. `inputs` are names of values that the model initializes but lets a caller override, and that become
    parameters. A frontend that reads further files must call `opened` with the path of each, relative to the model's
    folder: their contents are part of the key of cached packages.
    """

    model: Any
    dims: Mapping[str, int | tuple[int, int]]
    opened: Callable[[str], None] = lambda location: None
    inputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """File name, for spans and errors; "<model>" for a model in memory."""
        return self.model.name if isinstance(self.model, Path) else "<model>"

    def read(self) -> bytes:
        """Read a model given as a path or as bytes. Raises `ModelImportError` if the file cannot be read."""
        if isinstance(self.model, bytes):
            return self.model
        try:
            return Path(self.model).read_bytes()
        except OSError as error:
            raise ModelImportError(f"cannot read {self.model}: {error.strerror}") from error


@dataclass(frozen=True)
class Frontend:
    """A model format that a plugin imports.

    name: lower-case letters, digits and underscores, unique among frontends. description: the format's name for users, such as
    "TensorFlow Lite". load: imports a model. The parameters of its `main` have the names of the model's inputs; the function
    attribute "outputs" is a JSON list of output names. Raises `ModelImportError` for a damaged or unsupported model. suffixes: file
    suffixes in lower case, such as ".onnx". recognizes: tests whether the first `HEAD_BYTES` bytes of a file, or a library object,
    have this format; called for models without a known suffix, so it must import nothing. requires: distributions that `load`
    imports. install: requirement with which pip installs `requires`, such as "inlaid[torch]"."""

    name: str
    description: str
    load: Callable[[ModelSource], Module]
    suffixes: tuple[str, ...] = ()
    recognizes: Callable[[object], bool] = lambda model: False
    requires: tuple[str, ...] = ()
    install: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Required distributions that are not installed."""
        return tuple(name for name in self.requires if installed_version(name) is None)

    @property
    def remedy(self) -> str:
        """Command that installs the missing distributions."""
        return f'pip install "{self.install or " ".join(self.missing)}"'

    @property
    def title(self) -> str:
        """Format and suffixes, for messages, such as "ONNX (.onnx)"."""
        return f"{self.description} ({', '.join(self.suffixes)})" if self.suffixes else self.description
