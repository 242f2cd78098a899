"""Options of the target."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlasOptions:
    threads: int = 1
