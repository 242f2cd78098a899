"""Schedule primitives: functions that rewrite a loop program into an equivalent one.

A primitive checks only the blocks and loops that it touches. If it does not apply, it raises `ScheduleError`, which prints the
program and marks the statement. `tensor.schedule.Schedule` applies primitives in sequence and records them.
"""

from inlaid.tensor.primitives.cache import cache_read, cache_write, set_scope
from inlaid.tensor.primitives.compute_at import compute_at, reverse_compute_at
from inlaid.tensor.primitives.inline import compute_inline, reverse_compute_inline
from inlaid.tensor.primitives.layout import storage_align, transform_layout
from inlaid.tensor.primitives.loops import fuse, reorder, split, tile
from inlaid.tensor.primitives.marks import TASKS, AnnotationKey, annotate, bind, parallel, unroll, vectorize, vthread
from inlaid.tensor.primitives.padding import pad
from inlaid.tensor.primitives.pipeline import PREFETCH, SEMANTICS, double_buffer, prefetch, software_pipeline
from inlaid.tensor.primitives.reduction import decompose_reduction
from inlaid.tensor.primitives.rfactor import rfactor
from inlaid.tensor.primitives.rolling import rolling_buffer
from inlaid.tensor.primitives.stream import stream
from inlaid.tensor.primitives.tensorize import TensorIntrin, blockize, tensorize

__all__ = [
    "PREFETCH",
    "SEMANTICS",
    "TASKS",
    "AnnotationKey",
    "TensorIntrin",
    "annotate",
    "bind",
    "blockize",
    "cache_read",
    "cache_write",
    "compute_at",
    "compute_inline",
    "decompose_reduction",
    "double_buffer",
    "fuse",
    "pad",
    "parallel",
    "prefetch",
    "reorder",
    "reverse_compute_at",
    "reverse_compute_inline",
    "rfactor",
    "rolling_buffer",
    "set_scope",
    "software_pipeline",
    "split",
    "storage_align",
    "stream",
    "tensorize",
    "tile",
    "transform_layout",
    "unroll",
    "vectorize",
    "vthread",
]
