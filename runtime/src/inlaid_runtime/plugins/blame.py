"""Attribution of errors to a plugin, region and source nodes."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid_runtime.errors import InlaidError, PluginError

_NAMED = 3
"""Greatest number of source nodes named in a message."""


class blame:  # noqa: N801 - reads as a statement
    """Context manager that converts foreign exceptions into a `PluginError`, which names the plugin and the failed action `what`.
    Inlaid's errors pass through, with missing names filled in."""

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
            error.node = error.node or summarize_nodes(self.nodes)
        elif isinstance(error, (Exception, SystemExit)):
            raise PluginError(
                f"{self.what} failed: {describe(error)}", plugin=self.plugin, region=self.region, node=summarize_nodes(self.nodes)
            ) from error


def describe(error: BaseException) -> str:
    """Format an exception: its type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def summarize_nodes(nodes: Sequence[str]) -> str:
    """Format source node names: the first few, then the number of further ones."""
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")
