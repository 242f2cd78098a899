"""Memory planning: from lifetimes to offsets in an arena."""

from inlaid.memory.planner import Arena, Lifetime, aligned, lower_bound, plan

__all__ = ["Arena", "Lifetime", "aligned", "lower_bound", "plan"]
