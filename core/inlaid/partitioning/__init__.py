"""Partitions a model into regions, one target each.

The stages: annotate, merge into convex regions, outline, verify, explain.
"""

from inlaid.partitioning.annotate import Annotated, Claim, annotate
from inlaid.partitioning.compose import dissolve
from inlaid.partitioning.outline import REGION_TARGET, Partitioned, Placement, partition
from inlaid.partitioning.verify import verify_partition

__all__ = [
    "REGION_TARGET",
    "Annotated",
    "Claim",
    "Partitioned",
    "Placement",
    "annotate",
    "dissolve",
    "partition",
    "verify_partition",
]
