"""Cuts a model into regions, one target each: annotate, merge into convex regions, outline, verify, explain."""

from inlay.partition.annotate import Annotation, annotate
from inlay.partition.outline import REGION_TARGET, Partitioned, partition
from inlay.partition.verify import verify_partition

__all__ = ["REGION_TARGET", "Annotation", "Partitioned", "annotate", "partition", "verify_partition"]
