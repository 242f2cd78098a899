"""Whatever goes wrong in a plugin says so: which plugin, doing what, and for which region and nodes of the source model."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.errors import InlaidError, PluginError

_NAMED = 3
"""How many source nodes of a region are named."""


class blame:  # noqa: N801 - reads as a statement
    """Turns whatever is raised inside into a `PluginError` that says what failed. Inlaid's own errors pass, with the names added
    that they lack."""

    def __init__(self, plugin: str, what: str, region: str = "", nodes: Sequence[str] = ()) -> None:
        self.plugin = plugin
        self.what = what
        self.region = region
        self.nodes = nodes

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InlaidError):
            error.plugin = error.plugin or self.plugin
            error.region = error.region or self.region
            error.node = error.node or some(self.nodes)
        elif isinstance(error, (Exception, SystemExit)):
            raise PluginError(
                f"{self.what} failed: {describe(error)}", plugin=self.plugin, region=self.region, node=some(self.nodes)
            ) from error


def describe(error: BaseException) -> str:
    """An exception in words: its type and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def some(nodes: Sequence[str]) -> str:
    """The names of a region's source nodes, of many the first."""
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")
