"""Cuts a model into regions, one target each: annotate, merge into convex regions, outline, verify, explain."""

from inlay.partitioning.annotate import Annotation, annotate
from inlay.partitioning.outline import REGION_TARGET, Partitioned, partition
from inlay.partitioning.verify import verify_partition

__all__ = ["REGION_TARGET", "Annotation", "Partitioned", "annotate", "partition", "verify_partition"]
