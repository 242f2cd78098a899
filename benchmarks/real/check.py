"""Values of a model at all of its sizes beside ONNX Runtime."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import onnx

from real.model import Array, Feeds, Model, NotInstalledError

TOLERANCE = 1e-3
"""Of the largest number of an output: what a whole model in float32 may differ."""
HALF_TOLERANCE = 2e-2
"""The same of a model that computes in float16. Each engine rounds at other places: ONNX Runtime's
`diffusion_half` is up to 5e-3 away from the same U-Net in float32, and Inlaid's up to 9e-3."""
STEP_TOLERANCE = TOLERANCE + 2 / 255
"""The same of a model in QDQ form: a step of 8 bits besides. Where a sum lies between two steps, float32 and integers may take
different ones: of 20 logits of `image_qdq` five are a step apart at seed 4657, on every target."""
FLOOR = 1e-5
SEED = 1
TIME_LIMIT = 120.0
"""Seconds that a model may take, compiled and run at all sizes."""


@dataclass(frozen=True)
class Outcome:
    """What became of one model. `state`: "right"; "wrong" where values differ or a run failed; "refused" where it does not compile;
    "missing" where it is not installed. `elsewhere` names the other targets that part of it ran on."""

    name: str
    state: str
    reason: str = ""
    nodes: int = 0
    opset: int = 0
    seconds: float = 0.0
    elsewhere: tuple[str, ...] = ()


class Expected:
    """What ONNX Runtime answers.

    A model in QDQ form runs without graph optimizations: what it says is a float operator between roundings, whereas the
    fused 8-bit kernels round differently, and saturate on processors without VNNI.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if in_qdq(model):
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """Outputs by name."""
        names = [item.name for item in self._session.get_outputs()]
        return dict(zip(names, self._session.run(None, dict(feeds)), strict=True))


def difference(actual: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> str:
    """Where two results differ by more than the tolerance, "" where nowhere. Integers and strings must be the same."""
    for name, expected_array in expected.items():
        got = np.asarray(actual[name])
        expected_array = np.asarray(expected_array)
        if (got.shape, got.dtype.kind) != (expected_array.shape, expected_array.dtype.kind):
            return f"{name} is {got.dtype}{list(got.shape)} instead of {expected_array.dtype}{list(expected_array.shape)}"
        if expected_array.dtype.kind == "f" and expected_array.size:
            wrong = _wrong(got.astype(np.float64), expected_array.astype(np.float64), tolerance)
        else:
            wrong = np.asarray(got != expected_array)
        if wrong.any():
            at = tuple(int(index) for index in np.argwhere(wrong)[0])
            where = f"{int(wrong.sum())} of {wrong.size} places"
            return f"{name} differs at {where}; at {list(at)} {got[at]} instead of {expected_array[at]}"
    return ""


def _wrong(got: Array, expected: Array, tolerance: float) -> Array:
    finite = expected[np.isfinite(expected)]
    bound = tolerance * (float(np.abs(finite).max()) if finite.size else 0.0) + FLOOR
    return ~np.isclose(got, expected, rtol=0, atol=bound, equal_nan=True)


def in_half(model: onnx.ModelProto) -> bool:
    """Whether the model computes in float16."""
    return any(item.data_type == onnx.TensorProto.FLOAT16 for item in model.graph.initializer)


def in_qdq(model: onnx.ModelProto) -> bool:
    """Whether the model says its 8-bit operators as float ones between roundings."""
    return any(node.op_type == "DequantizeLinear" for node in model.graph.node)


def check(model: Model, target: str, seed: int = SEED) -> Outcome:
    """Compile a model and run it at all of its sizes."""
    import inlaid
    from inlaid_runtime.errors import InlaidError
    from real.model import Draw

    try:
        loaded = model.load()
    except NotInstalledError as error:
        return Outcome(model.name, "missing", str(error))
    opset = next((item.version for item in loaded.opset_import if item.domain in ("", "ai.onnx")), 0)
    outcome = Outcome(model.name, "right", nodes=len(loaded.graph.node), opset=opset)
    expected = Expected(loaded)
    feeds = [model.feeds(Draw(seed), *size) for size in model.sizes]
    answers = [expected.run(each) for each in feeds]
    start = time.perf_counter()
    try:
        executable = inlaid.compile(loaded, [target])
    except InlaidError as error:
        return replace(outcome, state="refused", reason=_reason(error), seconds=time.perf_counter() - start)
    fallback_targets = {region.target for region in executable.regions} - {target}
    outcome = replace(outcome, seconds=time.perf_counter() - start, elsewhere=tuple(sorted(fallback_targets)))
    tolerance = HALF_TOLERANCE if in_half(loaded) else STEP_TOLERANCE if in_qdq(loaded) else TOLERANCE
    for size, each, answer in zip(model.sizes, feeds, answers, strict=True):
        try:
            reason = difference(executable.run(each), answer, tolerance)
        except InlaidError as error:
            reason = _reason(error)
        if reason:
            return replace(outcome, state="wrong", reason=f"at {size}: {reason}")
    return outcome


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]


def isolated(work: Callable[[], Outcome], name: str, limit: float = TIME_LIMIT) -> Outcome:
    """Run a check in a process of its own: one that kills its process, or takes longer than `limit` seconds, has failed."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, work), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            return Outcome(name, "refused", f"took more than {limit:.0f} s", seconds=limit)
        return receiver.recv()
    except EOFError:
        process.join()
        return Outcome(name, "wrong", f"the process ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _serve(connection: Connection, work: Callable[[], Outcome]) -> None:
    warnings.simplefilter("ignore")
    with contextlib.closing(connection):
        connection.send(work())
