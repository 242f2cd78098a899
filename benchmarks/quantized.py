"""Measure int8 on x86: networks of `inlaid.quantize` beside themselves in float32, and TensorFlow Lite's beside LiteRT.

    python benchmarks/quantized.py [MODEL ...] [--tflite FILE ...] [--seconds 2]

Models are those of benchmarks/zoo, by name. One thread; all that is compared takes turns in one process, each the same time, and
figures are medians. `fixed` and `float` are the two arithmetics of `inlaid.Quantization`. `uint8` and `int8` are the versions with
such activations that ONNX Runtime's quantizer makes; Inlaid and ONNX Runtime run them. LiteRT is timed with its default delegate,
copies of inputs and outputs included. That rounds otherwise than LiteRT's own kernels, with which Inlaid's bytes are compared: a
difference ends the run with 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import inlaid
from zoo import INT8, feeds, model_path

TARGET = "x86:threads=1"
DEFAULT = ("resnet50", "mobilenet_v2", "squeezenet", "inception_v1", "shufflenet")
SAMPLES = 2
TURNS = 25
"""How often each takes its turn."""

Call = Callable[[], object]


def medians(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Milliseconds of each call, while they take turns for so many seconds each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            call()  # brings its weights back into the caches
            end = time.perf_counter() + seconds / TURNS
            while not times[name] or time.perf_counter() < end:
                begin = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(samples) * 1e3 for name, samples in times.items()}


def network(name: str, seconds: float) -> dict[str, float]:
    """Time one network of the zoo in float32, quantized in both arithmetics, and by ONNX Runtime's quantizer."""
    model = onnx.load(model_path(name))
    samples = [feeds(model, seed=seed) for seed in range(1, SAMPLES + 1)]
    models: dict[str, Any] = {"float32": model}
    for arithmetic in ("fixed", "float"):
        models[arithmetic] = inlaid.quantize(model, samples, inlaid.Quantization(arithmetic=arithmetic), targets=[TARGET])
    inputs = feeds(model)
    peers: dict[str, Call] = {}
    for label, version in (("uint8", f"{name}_int8"), ("int8", f"{name}_int8_signed")):
        if version in INT8:
            models[label] = onnx.load(model_path(version))
            peers[f"ONNX Runtime {label}"] = onnxruntime_call(model_path(version), inputs)
    loaded = {label: inlaid.compile(each, targets=[TARGET]) for label, each in models.items()}
    return medians({label: lambda run=each.run: run(inputs) for label, each in loaded.items()} | peers, seconds)


def onnxruntime_call(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Call:
    """ONNX Runtime on a model, with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))


def tflite(path: Path, seconds: float) -> tuple[dict[str, float], bool]:
    """A TensorFlow Lite model beside LiteRT, and whether the outputs equal those of LiteRT's own kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    executable = inlaid.compile(path, targets=[TARGET])
    rng = np.random.default_rng(0)
    inputs = {spec.name: _drawn(spec.dtype.numpy, spec.shape, rng) for spec in executable.inputs}

    def litert(**settings: Any) -> Callable[[], list[np.ndarray[Any, Any]]]:
        interpreter = Interpreter(str(path), num_threads=1, **settings)
        interpreter.allocate_tensors()
        input_arrays = [
            (item["index"], array) for item, array in zip(interpreter.get_input_details(), inputs.values(), strict=True)
        ]
        output_indices = [item["index"] for item in interpreter.get_output_details()]

        def call() -> list[np.ndarray[Any, Any]]:
            for index, array in input_arrays:
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in output_indices]

        return call

    exact = litert(experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    equal = all(map(np.array_equal, executable.run(inputs).values(), exact()))
    return medians({"Inlaid": lambda: executable.run(inputs), "LiteRT": litert()}, seconds), equal


def _drawn(dtype: np.dtype[Any], shape: Sequence[int], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=None, help=f"of benchmarks/zoo; default: {', '.join(DEFAULT)}")
    parser.add_argument("--tflite", nargs="*", type=Path, default=[], help="int8 models of TensorFlow Lite")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of what is compared")
    options = parser.parse_args()
    names = options.models or ([] if options.tflite else DEFAULT)
    is_equal = True
    for name in names:
        median_times = network(name, options.seconds)
        parts = [f"{label} {value:.3g} ms ({value / median_times['float32']:.2f})" for label, value in median_times.items()]
        print(f"{name:<24}{'   '.join(parts)}", flush=True)
    for path in options.tflite:
        median_times, equal = tflite(path, options.seconds)
        is_equal &= equal
        ours, theirs = median_times["Inlaid"], median_times["LiteRT"]
        says = "bytes equal" if equal else "bytes DIFFER"
        print(f"{path.stem:<24}Inlaid {ours:.3g} ms   LiteRT {theirs:.3g} ms   ratio {ours / theirs:.2f}   {says}", flush=True)
    return int(not is_equal)


if __name__ == "__main__":
    sys.exit(main())
