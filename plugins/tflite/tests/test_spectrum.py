"""RFFT2D, and the complex values that operators compute and move inside of a model."""

from __future__ import annotations

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Tensor, agree, check_litert, file, litert, single

from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load

GENERATOR = np.random.default_rng(5)
PARTS = ("REAL", "IMAG", "COMPLEX_ABS")


def spectrum(shape: tuple[int, ...], lengths: tuple[int, int], *moves: tuple[Op, Tensor]) -> bytes:
    """A model that computes the parts of the spectrum of its input, after `moves`: each reads tensor 2 or the move before it."""
    bins = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    tensors = [Tensor(shape), Tensor((2,), "int32", np.array(lengths, np.int32)), Tensor(bins, "complex64")]
    ops = [Op("RFFT2D", (0, 1), (2,), ("Rfft2dOptions", {}))]
    last = 2
    for op, result in moves:
        tensors.append(result)
        ops.append(Op(op.name, (last, *op.inputs), (len(tensors) - 1,), op.options))
        last = len(tensors) - 1
    outputs = []
    for name in PARTS:
        tensors.append(Tensor(tensors[last].shape))
        outputs.append(len(tensors) - 1)
        ops.append(Op(name, (last,), (outputs[-1],)))
    return file(Graph(tuple(tensors), (0,), tuple(outputs), tuple(ops)))


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ((8, 16), (8, 16)),
        ((3, 8, 16), (8, 16)),
        ((2, 3, 6, 10), (4, 8)),
        ((5, 7), (8, 8)),
        ((1, 100), (1, 128)),
        ((2, 9, 5), (2, 1)),
        ((4, 4), (1, 1)),
    ],
)
def test_spectra(shape: tuple[int, ...], lengths: tuple[int, int]) -> None:
    """Data is cropped or padded with zeros to any lengths."""
    value = GENERATOR.normal(size=shape).astype(np.float32)
    data = spectrum(shape, lengths)
    # For one column, LiteRT's imaginary part is wrong.
    real, imaginary, magnitude = check_litert(data, [value]) if lengths[1] > 1 else evaluate(load(data), [value])  # type: ignore[misc]
    exact = np.fft.rfft2(value.astype(np.float64), lengths)
    for actual, expected in ((real, exact.real), (imaginary, exact.imag), (magnitude, np.abs(exact))):
        agree(np.asarray(actual), expected.astype(np.float32))


def test_spectra_of_one_dimension() -> None:
    """TensorFlow's rfft is an RFFT2D of one row, whose axis SQUEEZE removes."""
    squeezed = (Op("SQUEEZE", (), (), ("SqueezeOptions", {"squeezeDims": [-2]})), Tensor((3, 17), "complex64"))
    value = GENERATOR.normal(size=(3, 1, 32)).astype(np.float32)
    real, imaginary, _ = check_litert(spectrum((3, 1, 32), (1, 32), squeezed), [value])
    exact = np.fft.rfft(value[:, 0].astype(np.float64))
    agree(real, exact.real.astype(np.float32))
    agree(imaginary, exact.imag.astype(np.float32))


def test_moved_complex_values() -> None:
    """LiteRT moves complex values by few operators only."""
    moves = (
        (Op("EXPAND_DIMS", (3,), ()), Tensor((2, 1, 4, 5), "complex64")),
        (Op("TRANSPOSE", (4,), ()), Tensor((5, 4, 1, 2), "complex64")),
        (Op("RESHAPE", (5,), ()), Tensor((20, 2), "complex64")),
    )
    numbers = [np.int32([1]), np.int32([3, 2, 1, 0]), np.int32([20, 2])]
    tensors = [Tensor((2, 4, 8)), Tensor((2,), "int32", np.int32([4, 8])), Tensor((2, 4, 5), "complex64")]
    tensors += [Tensor(each.shape, "int32", each) for each in numbers] + [result for _, result in moves]
    ops = [Op("RFFT2D", (0, 1), (2,), ("Rfft2dOptions", {}))]
    ops += [Op(op.name, (2 if at == 0 else 5 + at, *op.inputs), (6 + at,)) for at, (op, _) in enumerate(moves)]
    tensors += [Tensor((20, 2)), Tensor((20, 2))]
    ops += [Op("REAL", (8,), (9,)), Op("IMAG", (8,), (10,))]
    value = GENERATOR.normal(size=(2, 4, 8)).astype(np.float32)
    module = load(file(Graph(tuple(tensors), (0,), (9, 10), tuple(ops))))
    real, imaginary = evaluate(module, [value])  # type: ignore[misc] # two outputs
    expected = np.fft.rfft2(value.astype(np.float64))[:, None].transpose(3, 2, 1, 0).reshape(20, 2)
    agree(np.asarray(real), expected.real.astype(np.float32))
    agree(np.asarray(imaginary), expected.imag.astype(np.float32))


def test_magnitudes_of_extremes() -> None:
    """Squares that overflow or vanish, and infinite parts."""
    values = np.array(
        [3e38 + 4e37j, 3e-30 + 4e-30j, 0, complex(np.inf, np.nan), complex(1, -np.inf), complex(np.nan, 1)], np.complex64
    )
    tensors = (Tensor((6,), "complex64", values), Tensor((6,)), Tensor((6,)), Tensor((6,)))
    data = file(Graph(tensors, (1,), (3,), (Op("COMPLEX_ABS", (0,), (2,)), Op("ADD", (1, 2), (3,), ("AddOptions", {})))))
    zeros = np.zeros(6, np.float32)
    with np.errstate(all="ignore"):
        (actual,) = [np.asarray(evaluate(load(data), [zeros]))]
    np.testing.assert_allclose(actual, np.abs(values), rtol=1e-6)


def test_what_is_refused() -> None:
    for side, places in (("input", ((2,), (3,))), ("output", ((0,), (2,)))):
        tensors = (Tensor((4, 4)), Tensor((2,), "int32", np.int32([4, 4])), Tensor((4, 3), "complex64"), Tensor((4, 3)))
        ops = (Op("REAL", (2,), (3,)),) if side == "input" else (Op("RFFT2D", (0, 1), (2,), ("Rfft2dOptions", {})),)
        with pytest.raises(
            ModelImportError, match=f"the {side} t2 of the model is complex64.*; make the real and the imag.* two {side}s"
        ):
            load(file(Graph(tensors, *places, ops)))
    shape = (Op("SHAPE", (), (), ("ShapeOptions", {})), Tensor((4, 3), "complex64"))
    with pytest.raises(ModelImportError, match="SHAPE of complex64 is not supported: compute with the results of REAL, IMAG"):
        load(spectrum((4, 4), (4, 4), shape))
    negated = (Op("NEG", (), ()), Tensor((4, 3), "complex64"))
    with pytest.raises(ModelImportError, match=r"input 0 must be float32 or .*, got complex64"):
        load(spectrum((4, 4), (4, 4), negated))
    with pytest.raises(ModelImportError, match=r"the lengths must be two powers of two, got \(3, 4\)"):
        load(spectrum((4, 4), (3, 4)))
    real = single("REAL", [Tensor((4,))], Tensor((4,)))
    with pytest.raises(ModelImportError, match="input 0 must be complex64, got float32"):
        load(real)


def test_litert_refuses_other_lengths() -> None:
    with pytest.raises(RuntimeError):
        litert(spectrum((4, 4), (3, 4)), [np.zeros((4, 4), np.float32)])
