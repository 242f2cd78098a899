"""Schedule primitives: functions from a loop program to one that computes the same in another way.

Each checks only the blocks and loops that it touches, and raises `ScheduleError`, with the program printed and the place marked,
where it cannot be applied. `tensor.schedule.Schedule` applies them one after another and records what it did.
"""

from inlay.tensor.primitives.cache import cache_read, cache_write, set_scope
from inlay.tensor.primitives.compute_at import compute_at, reverse_compute_at
from inlay.tensor.primitives.inline import compute_inline, reverse_compute_inline
from inlay.tensor.primitives.layout import storage_align, transform_layout
from inlay.tensor.primitives.loops import fuse, reorder, split, tile
from inlay.tensor.primitives.marks import AnnotationKey, annotate, bind, parallel, unroll, vectorize, vthread
from inlay.tensor.primitives.padding import pad
from inlay.tensor.primitives.pipeline import PREFETCH, SEMANTICS, double_buffer, prefetch, software_pipeline
from inlay.tensor.primitives.reduction import decompose_reduction
from inlay.tensor.primitives.rfactor import rfactor
from inlay.tensor.primitives.rolling import rolling_buffer
from inlay.tensor.primitives.stream import stream
from inlay.tensor.primitives.tensorize import TensorIntrin, blockize, tensorize

__all__ = [
    "PREFETCH",
    "SEMANTICS",
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
