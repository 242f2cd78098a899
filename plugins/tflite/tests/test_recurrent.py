"""Converters of TensorFlow Lite's recurrent layers, beside LiteRT's own kernels: outputs of several runs, memory included."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Options, Tensor, agree, file, litert_runs, single

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, function, var
from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.types import TensorType
from inlaid_tflite import first_states, load
from inlaid_tflite.convert.fixed_activations import sigmoid, tanh

Array = np.ndarray[Any, Any]
TIME, BATCH, INPUTS, UNITS = 4, 2, 3, 5
GENERATOR = np.random.default_rng(11)


def weights(*shape: int) -> Tensor:
    return Tensor(shape, "float32", GENERATOR.normal(size=shape).astype(np.float32) * np.float32(0.5))


def memory(*shape: int, dtype: str = "float32", scale: float | None = None) -> Tensor:
    return Tensor(shape, dtype, scale=scale, variable=True)


def remembers(data: bytes, runs: Sequence[Sequence[Array]], relative: float = 1e-5) -> None:
    """Several runs, one after the other, as LiteRT's."""
    module, states = load(data), first_states(data)
    names = [param.name for param in module.main.params]
    for inputs, expected in zip(runs, litert_runs(data, runs), strict=True):
        results: Any = evaluate(module, [*inputs, *(states[name] for name in names[len(inputs) :])])
        outputs = results[: len(expected)]
        for actual, want in zip(outputs, expected, strict=True):
            agree(np.asarray(actual), want, relative)
        states = dict(zip(names[len(inputs) :], results[len(expected) :], strict=True))


def drawn(*shape: int) -> list[list[Array]]:
    return [[GENERATOR.normal(size=shape).astype(np.float32)] for _ in range(2)]


@pytest.mark.parametrize("activation", [0, 1, 3, 4])
def test_simple_layers(activation: int) -> None:
    layer = [weights(UNITS, INPUTS), weights(UNITS, UNITS), weights(UNITS), memory(BATCH, UNITS)]
    options = ("RNNOptions", {"fusedActivationFunction": activation})
    remembers(single("RNN", [Tensor((BATCH, INPUTS)), *layer], Tensor((BATCH, UNITS)), options), drawn(BATCH, INPUTS))
    for time_major, order in ((True, (TIME, BATCH)), (False, (BATCH, TIME))):
        options = ("SequenceRNNOptions", {"fusedActivationFunction": activation, "timeMajor": time_major})
        data = single("UNIDIRECTIONAL_SEQUENCE_RNN", [Tensor((*order, INPUTS)), *layer], Tensor((*order, UNITS)), options)
        remembers(data, drawn(*order, INPUTS))


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("aux", ["", "data", "weights"])
def test_simple_layers_in_two_directions(merged: bool, aux: str) -> None:
    way = (weights(UNITS, INPUTS), weights(UNITS, UNITS), weights(UNITS), memory(BATCH, UNITS))
    layers = [*way, weights(UNITS, INPUTS), weights(UNITS, UNITS), weights(UNITS), memory(BATCH, UNITS)]
    more: list[Tensor | None] = [None, None, None]
    if aux:
        more[0] = Tensor((TIME, BATCH, INPUTS))
    if aux == "weights":
        more[1:] = [weights(UNITS, INPUTS), weights(UNITS, INPUTS)]
    outputs = [Tensor((TIME, BATCH, 2 * UNITS))] if merged else [Tensor((TIME, BATCH, UNITS))] * 2
    options = ("BidirectionalSequenceRNNOptions", {"fusedActivationFunction": 4, "timeMajor": True, "mergeOutputs": merged})
    runs = [values * 2 if aux else values for values in drawn(TIME, BATCH, INPUTS)]
    remembers(single("BIDIRECTIONAL_SEQUENCE_RNN", [Tensor((TIME, BATCH, INPUTS)), *layers, *more], outputs, options), runs)


def layer(coupled: bool, peephole: bool, projected: int, bias: bool = True) -> list[Tensor | None]:
    """The weights of an LSTM layer, with `projected` outputs where there are any."""
    outputs = projected or UNITS
    tensors: list[Tensor | None] = [weights(UNITS, INPUTS) for _ in range(4)] + [weights(UNITS, outputs) for _ in range(4)]
    tensors += [weights(UNITS) if peephole else None for _ in range(3)]
    tensors += [weights(UNITS) for _ in range(4)]
    tensors += [weights(projected, UNITS), weights(projected) if bias else None] if projected else [None, None]
    for index in (0, 4, 8, 11) if coupled else ():
        tensors[index] = None
    return tensors


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize(
    ("coupled", "peephole", "projected", "normed", "clips"),
    [
        (False, False, 0, False, {}),
        (True, False, 0, False, {"cellClip": 0.4}),
        (False, True, 4, False, {"cellClip": 0.5, "projClip": 0.3}),
        (True, True, 4, True, {}),
        (False, False, 0, True, {}),
    ],
)
def test_lstm(coupled: bool, peephole: bool, projected: int, normed: bool, clips: dict[str, float], time_major: bool) -> None:
    outputs = projected or UNITS
    norms: list[Tensor | None] = [weights(UNITS) for _ in range(4)] if normed else []
    if normed and coupled:
        norms[0] = None
    rest = [*layer(coupled, peephole, projected), memory(BATCH, outputs), memory(BATCH, UNITS), *norms]
    order = (TIME, BATCH) if time_major else (BATCH, TIME)
    options: Options = ("UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4, "timeMajor": time_major, **clips})
    name = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    remembers(single(name, [Tensor((*order, INPUTS)), *rest], Tensor((*order, outputs)), options), drawn(*order, INPUTS))
    if time_major:
        options = ("LSTMOptions", {"fusedActivationFunction": 4, **clips})
        remembers(single("LSTM", [Tensor((BATCH, INPUTS)), *rest], Tensor((BATCH, outputs)), options), drawn(BATCH, INPUTS))


def test_long_sequences_are_loops() -> None:
    rest = [*layer(False, False, 0), memory(1, UNITS), memory(1, UNITS)]
    options = ("UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4})
    data = single("UNIDIRECTIONAL_SEQUENCE_LSTM", [Tensor((1, 20, INPUTS)), *rest], Tensor((1, 20, UNITS)), options)
    remembers(data, drawn(1, 20, INPUTS))


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("aux", ["", "data", "weights"])
def test_lstm_in_two_directions(merged: bool, aux: str) -> None:
    states = [memory(BATCH, UNITS) for _ in range(4)]
    more = [
        Tensor((TIME, BATCH, INPUTS)) if aux else None,
        *(weights(UNITS, INPUTS) if aux == "weights" else None for _ in range(8)),
    ]
    inputs = [Tensor((TIME, BATCH, INPUTS)), *layer(False, False, 0), *layer(False, False, 0), *states, *more]
    outputs = [Tensor((TIME, BATCH, 2 * UNITS))] if merged else [Tensor((TIME, BATCH, UNITS))] * 2
    options = ("BidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4, "timeMajor": True, "mergeOutputs": merged})
    runs = [values * 2 if aux else values for values in drawn(TIME, BATCH, INPUTS)]
    remembers(single("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, options), runs)


def test_the_basic_lstm() -> None:
    x, output, cell = (Tensor((BATCH, width)) for width in (INPUTS, UNITS, UNITS))
    inputs = [x, output, weights(4 * UNITS, INPUTS + UNITS), weights(4 * UNITS), cell]
    outputs = [Tensor((BATCH, width)) for width in (UNITS, UNITS, INPUTS + UNITS, 4 * UNITS)]
    options = ("LSTMOptions", {"fusedActivationFunction": 4, "kernelType": 1})
    values = [GENERATOR.normal(size=(BATCH, width)).astype(np.float32) for width in (INPUTS, UNITS, UNITS)]
    remembers(single("LSTM", inputs, outputs, options), [values])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank: int, bias: bool) -> None:
    filters = UNITS * rank
    inputs = [Tensor((BATCH, INPUTS)), weights(filters, INPUTS), weights(filters, TIME), weights(UNITS) if bias else None]
    options = ("SVDFOptions", {"rank": rank, "fusedActivationFunction": 1})
    data = single("SVDF", [*inputs, memory(BATCH, filters * TIME)], Tensor((BATCH, UNITS)), options)
    remembers(data, drawn(BATCH, INPUTS) + drawn(BATCH, INPUTS))


@pytest.mark.parametrize("zero_point", [0, -7])
def test_svdf_of_integers(zero_point: int) -> None:
    filters = UNITS * 2
    inputs = [
        Tensor((BATCH, INPUTS), "int8", scale=0.02, zero_point=zero_point),
        Tensor((filters, INPUTS), "int8", GENERATOR.integers(-127, 128, (filters, INPUTS)), 0.01),
        Tensor((filters, TIME), "int16", GENERATOR.integers(-32767, 32768, (filters, TIME)), 0.00005),
        Tensor((UNITS,), "int32", GENERATOR.integers(-9000, 9000, UNITS), 0.0001 * 0.00005),
        memory(BATCH, filters * TIME, dtype="int16", scale=0.0001),
    ]
    options = ("SVDFOptions", {"rank": 2, "fusedActivationFunction": 1})
    data = single("SVDF", inputs, Tensor((BATCH, UNITS), "int8", scale=0.03, zero_point=4), options)
    remembers(data, [[GENERATOR.integers(-128, 128, (BATCH, INPUTS)).astype(np.int8)] for _ in range(6)])


def lstm_of_int8(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A layer of int8 data of any sizes, scales and numbers of steps, and inputs of two runs."""
    generator = np.random.default_rng(seed)
    batch, steps, inputs, units, point, moved, power = (
        int(generator.choice(values))
        for values in ((1, 2, 3), (1, 3, 20, 20), (1, 3, 8, 17), (1, 5, 8, 11, 16), (-9, 0, 5), (-7, 3), range(-15, -8))
    )
    scale, fine, clip = (float(generator.choice(values)) for values in ((0.008, 2.0**-7, 0.003), (0.01, 0.002), (0.0, 0.0, 0.6)))
    time_major = bool(generator.integers(2))

    def stored(dtype: str, scale: float, *shape: int) -> Tensor:
        limit = 127 if dtype == "int8" else 30000  # sums reach beyond 16 bits: they are limited where LiteRT limits them
        return Tensor(shape, dtype, generator.integers(-limit, limit, shape), scale)

    order = (steps, batch) if time_major else (batch, steps)
    tensors: list[Tensor] = [Tensor((*order, inputs), "int8", scale=0.03, zero_point=point)]
    tensors += [stored("int8", fine * (1 + 0.2 * gate), units, inputs) for gate in range(4)]
    tensors += [stored("int8", 1.2 * fine, units, units) for _ in range(4)]
    tensors += [stored("int32", 0.03 * fine * (1 + 0.2 * gate), units) for gate in range(4)]
    tensors += [
        Tensor((batch, units), "int8", scale=scale, zero_point=moved, variable=True),
        memory(batch, units, dtype="int16", scale=2.0**power),
    ]
    tensors += [Tensor((*order, units), "int8", scale=scale, zero_point=moved)]
    tensors += [Tensor((0,), "int16", scale=2.0**-12) for _ in range(4)] + [Tensor((0,), "int8", scale=scale, zero_point=moved)]
    places = (0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1)
    options = ("UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4, "cellClip": clip, "timeMajor": time_major})
    op = Op("UNIDIRECTIONAL_SEQUENCE_LSTM", places, (15,), options, tuple(range(16, 21)))
    runs = [[generator.integers(-128, 128, (*order, inputs)).astype(np.int8)] for _ in range(2)]
    return file(Graph(tuple(tensors), (0,), (15,), (op,))), runs


@pytest.mark.parametrize("seed", range(30))
def test_lstm_of_integers(seed: int) -> None:
    """The cells of long runs grow to the ends of their tables."""
    remembers(*lstm_of_int8(seed))


def lstm_of_int16(seed: int) -> tuple[bytes, list[list[Array]]]:
    """A layer of int16 data with int8 weights and int64 biases, and inputs of three runs."""
    generator = np.random.default_rng(seed)
    batch, steps, inputs, units, power = (
        int(generator.choice(values)) for values in ((1, 2), (1, 3, 8), (1, 3, 8), (1, 5, 8), range(-15, -8))
    )
    fine, clip = (float(generator.choice(values)) for values in ((0.008, 2.0**-7, 0.001), (0.0, 0.0, 0.6)))
    time_major = bool(generator.integers(2))

    def stored(dtype: str, scale: float, *shape: int) -> Tensor:
        limit = 127 if dtype == "int8" else 3_000_000
        return Tensor(shape, dtype, generator.integers(-limit, limit, shape), scale)

    order = (steps, batch) if time_major else (batch, steps)
    tensors: list[Tensor] = [Tensor((*order, inputs), "int16", scale=0.0004)]
    tensors += [stored("int8", fine * (1 + 0.2 * gate), units, inputs) for gate in range(4)]
    tensors += [stored("int8", 1.2 * fine, units, units) for _ in range(4)]
    tensors += [stored("int64", 0.0004 * fine * (1 + 0.2 * gate), units) for gate in range(4)]
    tensors += [memory(batch, units, dtype="int16", scale=2.0**-15), memory(batch, units, dtype="int16", scale=2.0**power)]
    tensors += [Tensor((*order, units), "int16", scale=2.0**-15)]
    tensors += [Tensor((0,), "int16", scale=2.0**-12) for _ in range(4)] + [Tensor((0,), "int16", scale=2.0**-15)]
    places = (0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1)
    options = ("UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4, "cellClip": clip, "timeMajor": time_major})
    op = Op("UNIDIRECTIONAL_SEQUENCE_LSTM", places, (15,), options, tuple(range(16, 21)))
    runs = [[generator.integers(-32768, 32768, (*order, inputs)).astype(np.int16)] for _ in range(3)]
    return file(Graph(tuple(tensors), (0,), (15,), (op,))), runs


def streamed(data: bytes, runs: Sequence[Sequence[Array]]) -> list[Array]:
    """The first outputs of several runs, each of which starts from the states of the one before."""
    module, states = load(data), first_states(data)
    names = [param.name for param in module.main.params[1:]]
    outputs = []
    for inputs in runs:
        output, *new = evaluate(module, [*inputs, *(states[name] for name in names)])  # type: ignore[misc] # a tuple
        outputs.append(np.asarray(output))
        states = dict(zip(names, new, strict=True))
    return outputs


@pytest.mark.parametrize("seed", range(20))
def test_lstm_of_16_bit_integers(seed: int) -> None:
    """As TensorFlow Lite Micro, since LiteRT has no such kernel."""
    runtime = pytest.importorskip(
        "tflite_micro.python.tflite_micro.runtime", reason="needs TensorFlow Lite Micro: pip install tflite-micro"
    )
    data, runs = lstm_of_int16(seed)
    micro = runtime.Interpreter.from_bytes(data)
    for inputs, actual in zip(runs, streamed(data, runs), strict=True):
        micro.set_input(inputs[0], 0)
        micro.invoke()
        np.testing.assert_array_equal(actual, micro.get_output(0))


RECORDED = [
    [2965673001, 1812225515, 4168681529],
    [1870676259, 3779152727, 4018080800],
    [396603677, 569025278, 3186217888],
    [1778707871, 2260096396, 1290056238],
]
"""CRC-32 of the outputs of three runs, by seed."""


def test_recorded_results_of_an_lstm_of_16_bit_integers() -> None:
    """Checksums of what TensorFlow Lite Micro 0.dev20261023182759 computed."""
    checksums = [[zlib.crc32(output.tobytes()) for output in streamed(*lstm_of_int16(seed))] for seed in range(4)]
    assert checksums == RECORDED


EVERY = np.arange(-32768, 32768, dtype=np.int32)


def applied(activation: Callable[[Expr, int], Expr], bits: int) -> Array:
    """The results of an activation for all 16-bit values, as real numbers."""
    x = var("x", TensorType(EVERY.shape, "int32"))
    return np.asarray(evaluate(function([x], activation(x, bits)), [EVERY])) / 2.0**15


@pytest.mark.parametrize("bits", range(9, 16))
def test_tanh_in_fixed_point(bits: int) -> None:
    """Of every cell, down to the last power of e."""
    np.testing.assert_allclose(applied(tanh, bits), np.tanh(EVERY / 2.0**bits), rtol=0, atol=5e-4)


def test_sigmoid_in_fixed_point() -> None:
    np.testing.assert_allclose(applied(sigmoid, 12), 1 / (1 + np.exp(-EVERY / 2.0**12)), rtol=0, atol=5e-4)


def test_layers_of_other_types_are_refused() -> None:
    rest = [*layer(False, False, 0), memory(1, UNITS), memory(1, UNITS)]
    data = single("UNIDIRECTIONAL_SEQUENCE_LSTM", [Tensor((1, 4, INPUTS), "uint8", scale=1.0), *rest], Tensor((1, 4, UNITS)))
    with pytest.raises(ModelImportError, match="input 0 must be float32 or int8 or int16, got uint8: convert the model"):
        load(data)
