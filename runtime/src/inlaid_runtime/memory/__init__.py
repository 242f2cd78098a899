"""Memory planning: computes offsets in an arena from the lifetimes of buffers."""

from inlaid_runtime.memory.planner import Arena, Lifetime, aligned, lower_bound, plan

__all__ = ["Arena", "Lifetime", "aligned", "lower_bound", "plan"]
