"""What a plugin that imports models provides: a format, how to recognise a model of it, and how to import one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid.errors import ModelImportError

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

HEAD_BYTES = 64
"""First bytes of a model that `Frontend.recognises` is given."""


@dataclass(frozen=True)
class ModelSource:
    """A model as the user gave it.

    `model` is the path of a file, the bytes of one, or an object of a library, such as an `onnx.ModelProto`. `dims` fixes symbolic
    dimensions by name, or bounds them, inclusively. `opened` is to be told the path, from the model's folder, of each other file
    from which data is taken: compiled packages are kept by the contents of all of them.
    """

    model: Any
    dims: Mapping[str, int | tuple[int, int]]
    opened: Callable[[str], None] = lambda location: None

    @property
    def name(self) -> str:
        """The name of the file, for spans and errors; "<model>" for a model in memory."""
        return self.model.name if isinstance(self.model, Path) else "<model>"

    def read(self) -> bytes:
        """The bytes of a model given as a path or as bytes. Raises `ModelImportError` where the file cannot be read."""
        if isinstance(self.model, bytes):
            return self.model
        try:
            return Path(self.model).read_bytes()
        except OSError as error:
            raise ModelImportError(f"cannot read {self.model}: {error.strerror}") from error


@dataclass(frozen=True)
class Frontend:
    """A model format that a plugin imports.

    name: lower-case letters, digits and underscores; no other frontend has it. description: the format in words, such as
    "TensorFlow Lite". load: imports a model. Its `main` takes the model's inputs under their names; the names of outputs are in
    the function attribute "outputs", as a JSON list. Raises `ModelImportError` for a model that is damaged or not supported.
    suffixes: of the format's files, in lower case, such as ".onnx". recognises: whether the first `HEAD_BYTES` bytes of a file, or
    an object of a library, are of the format; called for models without a known suffix, so it must import nothing. requires:
    distributions that `load` imports. install: what pip installs to get them, such as "inlaid[torch]".
    """

    name: str
    description: str
    load: Callable[[ModelSource], Module]
    suffixes: tuple[str, ...] = ()
    recognises: Callable[[object], bool] = lambda model: False
    requires: tuple[str, ...] = ()
    install: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Required distributions that are not installed."""
        return tuple(name for name in self.requires if version_of(name) is None)

    @property
    def remedy(self) -> str:
        """How to install what is missing."""
        return f'pip install "{self.install or " ".join(self.missing)}"'

    @property
    def title(self) -> str:
        """The format and its suffixes, for messages: "ONNX (.onnx)"."""
        return f"{self.description} ({', '.join(self.suffixes)})" if self.suffixes else self.description


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution; None where it is not installed."""
    import importlib.metadata  # slow to load, and not needed to run packages

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
