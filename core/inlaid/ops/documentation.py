"""Documentation of the operators, by name, for `help(inlaid.ops.conv)` and the operator reference of the user's guide.

The first line of a text says what the operator computes. The following lines give shapes and dtypes of operands and results.
Attributes are documented by their classes. Conventions:

* Shapes are written (N, C, spatial...). "Float" is any float dtype, "numeric" any float or integer dtype.
* Operands broadcast as in numpy where the text says so. `x?` is an optional operand, `x...` is any number of operands.
* An operator raises `TypeInferenceError` if the operands or attributes of a call do not fit. Conditions on symbolic sizes are
  checked when the model runs, which raises `InputError` or `KernelFault`.
"""

from __future__ import annotations


def _map(text: str, kind: str = "float") -> str:
    """Document an element-wise operator of one operand."""
    return f"{text}\nOperand: x, {kind}, any shape. Result: shape and dtype of x."


def _test(text: str) -> str:
    """Document an element-wise operator of one float operand with a bool result."""
    return f"{text}\nOperand: x, float, any shape. Result: bool, shape of x."


def _pair(text: str, kind: str = "of one numeric dtype", result: str = "that dtype") -> str:
    """Document an element-wise operator of two operands."""
    return f"{text}\nOperands: a and b, {kind}, broadcast. Result: {result}, the broadcast shape."


_INDICES = "A negative index counts from the end. An index out of range raises `KernelFault` at run time."
_PRODUCT = "dtype `out_dtype`, by default the operands' dtype, at least int32 for integers"
_RECURRENT = "b (D, 2 G H) (biases of w, then of r)"
_TYPE = "Result: shape and dtype of x."

DOCUMENTATION: dict[str, str] = {
    "relu": _map("Rectified linear unit: max(x, 0). NaN-propagating.", "numeric"),
    "sigmoid": _map("Logistic function: 1 / (1 + exp(-x))."),
    "gelu": _map("Gaussian error linear unit: x * P(X <= x) for a standard normal X."),
    "attention": """Scaled dot-product attention (Vaswani et al., 2017): softmax(q k^T * scale + mask) v.
Operands: queries q (B, H, L, E), keys k (B, K, S, E), values v (B, K, S, V), of one float dtype; with `masked`, mask, bool or
float, broadcast to (B, H, L, S); with `padded`, lengths (B,), integer. Result: (B, H, L, V), dtype of q. H must be a multiple of K:
each key and value head serves H / K query heads. The result of a query without visible keys is 0.""",
    "sequence_empty": "Make an empty sequence.",
    "sequence_construct": "Make a sequence of the operands, tensors of one dtype.",
    "sequence_insert": """Insert a tensor into a sequence before a position, or append it.
Operands: sequence, item, position? (one integer; a negative one counts from the end).""",
    "sequence_erase": """Remove the tensor at a position of a sequence, or the last one.
Operands: sequence, position? (one integer; a negative one counts from the end).""",
    "sequence_at": """Return the tensor at a position of a sequence.
Operands: sequence, position (one integer; a negative one counts from the end).""",
    "sequence_length": "Return the number of tensors in a sequence, 0-d int64.",
    "sequence_join": "Concatenate the tensors of a sequence along an axis, or stack them along a new axis.",
    "sequence_split": """Split a tensor along an axis into a sequence of tensors.
Operands: x, sizes? (integer: one extent for all parts, or a vector with the extent of each; by default 1).""",
    "optional_none": "Make an optional without a value.",
    "optional_some": "Make an optional with a value.",
    "optional_has": "Test whether an optional has a value. Result: 0-d bool.",
    "optional_get": "Return the value of an optional. Raises `KernelFault` at run time if it has none.",
    "host_widen": "Convert a sequence or an optional to a more general type.",
    "string_concat": _pair("Concatenate strings element by element.", "string", "string"),
    "string_equal": _pair("Compare strings for equality.", "string", "bool"),
    "string_split": """Split strings at a delimiter.
Operand: x, string. Results: the parts, (*shape of x, maximum number of parts), padded with empty strings; the number of parts of
each element of x, int64, shape of x.""",
    "string_normalize": """Change the case of strings and remove stop words.
Operand: x (n,) or (1, n), string. Result: string, same rank.""",
    "regex_full_match": """Test whether strings match a regular expression completely.
Operand: x, string. Result: bool, shape of x.""",
    "string_cast": "Convert strings to numbers, or numbers to strings.\nResult: dtype `dtype`, shape of x.",
    "lookup": """Map each element that equals a key to the key's value, any other element to the default.
Result: dtype `dtype`, shape of x.""",
    "conv": f"""Convolution (cross-correlation) without bias.
Operands: x (N, C, spatial...), w (O, C / groups, kernel...), of one float dtype or any integer dtypes, with 1 to 3 spatial
dimensions.
Result: (N, O, spatial...), {_PRODUCT}.""",
    "cast": """Convert to another dtype.
To an integer dtype, an integer keeps its low bits; a float is truncated and saturated, and NaN becomes 0. To bool, the result is
x != 0. To a float dtype, x is rounded half to even; an overflow becomes infinity, or NaN if the dtype has no infinity.
Operand: x, numeric or bool, any shape. Result: dtype `dtype`, shape of x.""",
    "bitcast": """Reinterpret the bits of each element as another dtype of the same width.
Operand: x, numeric or bool, any shape.""",
    "deform_conv": """Deformable convolution (Zhu et al., 2019): each tap reads x, interpolated, at an offset.
Operands, of one float dtype: x (N, C, spatial...); w (O, C / groups, kernel...); offset (N, offset_groups * taps * dimensions,
output spatial...), in elements; mask? (N, offset_groups * taps, output spatial...), which scales the taps. Result: (N, O, output
spatial...). Outside of its bounds, x is read as 0.""",
    "col2im": """Sum overlapping windows into the images that they were extracted from.
Operand: x (N, C * taps, number of windows), numeric. Result: (N, C, *shape), dtype of x.""",
    "abs": _map("Absolute value.", "numeric"),
    "neg": _map("Negation. Integers wrap.", "numeric"),
    "sign": _map("Sign: -1, 0 or 1.", "numeric"),
    "sqrt": _map("Square root."),
    "floor": _map("Round down to an integer."),
    "ceil": _map("Round up to an integer."),
    "round": _map("Round to the nearest integer, half to even."),
    "exp": _map("Exponential."),
    "expm1": _map("exp(x) - 1, accurate near 0."),
    "log": _map("Natural logarithm."),
    "log1p": _map("log(1 + x), accurate near 0."),
    "sin": _map("Sine of an angle in radians."),
    "cos": _map("Cosine of an angle in radians."),
    "tan": _map("Tangent of an angle in radians."),
    "asin": _map("Inverse sine, in radians."),
    "acos": _map("Inverse cosine, in radians."),
    "atan": _map("Inverse tangent, in radians."),
    "sinh": _map("Hyperbolic sine."),
    "cosh": _map("Hyperbolic cosine."),
    "tanh": _map("Hyperbolic tangent."),
    "asinh": _map("Inverse hyperbolic sine."),
    "acosh": _map("Inverse hyperbolic cosine."),
    "atanh": _map("Inverse hyperbolic tangent."),
    "erf": _map("Error function."),
    "logical_not": _map("Logical NOT.", "bool"),
    "bitwise_not": _map("Bitwise NOT.", "integer"),
    "isnan": _test("Test for NaN."),
    "isinf": _test("Test for infinity. The attributes select which signs count."),
    "add": _pair("Addition. Integers wrap."),
    "sub": _pair("Subtraction. Integers wrap."),
    "mul": _pair("Multiplication. Integers wrap."),
    "div": _pair("Division. Integer division truncates towards 0; x / 0 is 0 for integers."),
    "mod": _pair("Remainder with the sign of the divisor. x mod 0 is 0 for integers."),
    "fmod": _pair("Remainder with the sign of the dividend. x mod 0 is 0 for integers."),
    "pow": _pair("Power a ** b. Integers wrap; a negative integer exponent truncates 1 / a ** -b, and gives 0 for a = 0."),
    "maximum": _pair("Element-wise maximum. NaN-propagating."),
    "minimum": _pair("Element-wise minimum. NaN-propagating."),
    "equal": _pair("Test a == b.", "of one numeric or bool dtype", "bool"),
    "less": _pair("Test a < b.", result="bool"),
    "less_equal": _pair("Test a <= b.", result="bool"),
    "logical_and": _pair("Logical AND.", "bool", "bool"),
    "logical_or": _pair("Logical OR.", "bool", "bool"),
    "logical_xor": _pair("Logical exclusive OR.", "bool", "bool"),
    "bitwise_and": _pair("Bitwise AND.", "of one integer dtype"),
    "bitwise_or": _pair("Bitwise OR.", "of one integer dtype"),
    "bitwise_xor": _pair("Bitwise exclusive OR.", "of one integer dtype"),
    "shift_left": _pair("Shift a left by b bits. A count outside of [0, width) gives 0.", "of one integer dtype"),
    "shift_right": _pair(
        "Shift a right by b bits, arithmetically if signed. A count outside of [0, width) gives 0, or -1 for a < 0.",
        "of one integer dtype",
    ),
    "where": """Select x where the condition is true, else y.
Operands: condition, bool; x and y, of one numeric or bool dtype; all broadcast. Result: dtype of x, the broadcast shape.""",
    "clip": _map("Clamp to the range [`minimum`, `maximum`]. NaN-propagating.", "numeric"),
    "multiply_fixed": """Fixed-point multiplication: x * multiplier * 2^(shift - 31), rounded.
A positive shift first shifts x left, which wraps. The upper half of the 64-bit product is rounded half up. A negative shift then
shifts the upper half right, rounded by `rounding`. With rounding "once" or "once_away", the shift must be at most 30, and the
64-bit product, which wraps, is shifted right and rounded once, half up or half away from 0.
Operands: x, int32, or int64 with these two roundings; multiplier and shift, int32, 0-d or one element per index of `axis`.
Result: int32, shape of x.""",
    "take": f"""Gather slices along an axis, as numpy.take.
Operands: x, any dtype; indices, integer, any shape. Result: shape of x with the axis replaced by the shape of indices, dtype of x.
{_INDICES}""",
    "take_along_axis": f"""Gather elements along an axis, one index per element, as numpy.take_along_axis.
Operands: x, any dtype; indices, integer, rank of x, extents <= those of x on the other axes. Result: shape of indices, dtype of x.
{_INDICES}""",
    "gather_nd": f"""Gather slices at index vectors, as ONNX GatherND.
Operands: x, any dtype; indices (batch..., index shape..., depth), integer: its last dimension holds vectors that index the first
`depth` axes of x after the batch axes. Result: (batch..., index shape..., remaining axes of x), dtype of x.
{_INDICES}""",
    "reverse_sequence": f"""Reverse the first `lengths[i]` elements along the time axis, for each index i of the batch axis.
Operands: x, any dtype; lengths, integer, one element per index of the batch axis. {_TYPE}
A length that is negative or exceeds the time axis raises `KernelFault` at run time.""",
    "matmul": f"""Matrix product, as numpy.matmul.
Operands: a (..., n, k), b (..., k, m), of one float dtype or any integer dtypes; leading dimensions broadcast. A vector is a row on
the left, a column on the right. Result: (..., n, m), {_PRODUCT}.""",
    "det": "Determinant of square matrices.\nOperand: x (..., n, n), float. Result: (...), dtype of x.",
    "softmax": _map("Softmax along an axis: exp(x - max) / sum(exp(x - max))."),
    "log_softmax": _map("Logarithm of the softmax along an axis."),
    "batch_norm": f"""Batch normalization for inference: (x - mean) / sqrt(variance + epsilon) * scale + bias.
Operands, float: x (N, C, spatial...); scale, bias, mean and variance (C,). {_TYPE}""",
    "lrn": """Local response normalization across channels (Krizhevsky et al., 2012).
Computes x / (bias + alpha / size * sum) ** beta, where the sum is over the squares of `size` channels around each channel.
Operand: x (N, C, spatial...), float. Result: shape and dtype of x.""",
    "layer_norm": f"""Layer normalization (Ba et al., 2016): (x - mean) / sqrt(variance + epsilon) * scale + bias.
Mean and variance are over the axes from `axis` on.
Operands, float: x, any shape; scale and bias?, broadcast to the shape of x. {_TYPE}""",
    "rms_norm": f"""Root mean square normalization (Zhang and Sennrich, 2019): x / sqrt(mean(x * x) + epsilon) * scale.
The mean is over the axes from `axis` on.
Operands, float: x, any shape; scale, broadcast to the shape of x. {_TYPE}""",
    "bind_size": """Bind an element of an integer tensor as a new symbolic dimension.
Operands: value, int64, static shape; check..., results of `assert_true` that must be evaluated before. Result: (size, 0), bool,
whose first extent is the new dimension. A size outside of [0, 2^47) raises `KernelFault` at run time.""",
    "assert_true": """Check a condition at run time. Raises `KernelFault` with a message if it is false.
Operand: condition, 0-d bool. Result: an empty bool tensor (0,), on which the checked computations depend (see `after`).""",
    "fail": "Raise `KernelFault` with a message when evaluated. The call has the type that its attributes describe.",
    "max_pool": """Maximum over sliding windows. Padding is ignored. NaN-propagating.
Operand: x (N, C, spatial...), numeric. Result: (N, C, output spatial...), dtype of x.""",
    "max_pool_indices": """Maximum over sliding windows, with its index. Padding is ignored. NaN-propagating.
Operand: x (N, C, spatial...), numeric. Results: the maxima (N, C, output spatial...), dtype of x; their indices into the flattened
x, int64, same shape. Of equal elements the first is selected.""",
    "avg_pool": """Mean over sliding windows.
Operand: x (N, C, spatial...), float. Result: (N, C, output spatial...), dtype of x.""",
    "quantize": """Quantize: round(x / scale) + zero_point, rounded half to even, saturated. NaN is stored as 0.
Operands: x, float, any shape; scale, dtype of x; zero_point?, dtype `dtype`. Scale and zero point are 0-d (per tensor), one element
per index of `axis` (per channel), or one per block (see `block_size`). Result: dtype `dtype`, shape of x.""",
    "dequantize": """Dequantize: (x - zero_point) * scale.
Operands: x, numeric, any shape; scale, float; zero_point?, dtype of x. Scale and zero point are 0-d (per tensor), one element per
index of `axis` (per channel), or one per block (see `block_size`). Result: dtype `dtype`, shape of x. The difference is int32 for
integers.""",
    "requantize": """Requantize an int32 accumulator: round(x * scale) + zero_point, saturated.
Operands: x, int32, any shape; scale, float32 (product of the input scales / output scale); zero_point, dtype `dtype`; both 0-d or
one element per index of `axis`. Result: dtype `dtype`, an integer of at most 16 bits, shape of x.""",
    "random_uniform": """Random numbers from the uniform distribution on [0, 1).
Operand: state, 0-d uint64. Results: values, shape `shape`, dtype `dtype`; the next state, 0-d uint64. The generator is
SplitMix64.""",
    "random_normal": """Random numbers from the standard normal distribution.
Operand: state, 0-d uint64. Results: values, shape `shape`, dtype `dtype`; the next state, 0-d uint64. The generator is
SplitMix64.""",
    "lstm": f"""Long short-term memory layer (Hochreiter and Schmidhuber, 1997), with the equations of ONNX LSTM.
Operands, of one float dtype, G = 4 gates (input, output, forget, cell) and D directions: x (T, B, I), w (D, G H, I), r (D, G H, H),
{_RECURRENT}, initial states h and c (D, B, H); with attribute `peephole`, peephole weights
(D, 3 H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H), last cell state (D, B, H).""",
    "gru": f"""Gated recurrent unit layer (Cho et al., 2014), with the equations of ONNX GRU.
Operands, of one float dtype, G = 3 gates (update, reset, hidden) and D directions: x (T, B, I), w (D, G H, I), r (D, G H, H),
{_RECURRENT}, initial state h (D, B, H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H).""",
    "rnn": f"""Simple recurrent layer (Elman, 1990), with the equations of ONNX RNN.
Operands, of one float dtype, G = 1 and D directions: x (T, B, I), w (D, H, I), r (D, H, H), {_RECURRENT},
initial state h (D, B, H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H).""",
    "reduce_sum": "Sum over axes.\nOperand: x, numeric. Result: dtype of x. `inlaid.ops.sum` sums over all axes by default.",
    "reduce_prod": "Product over axes.\nOperand: x, numeric. Result: dtype of x.",
    "reduce_max": """Maximum over axes. NaN-propagating.
Operand: x, numeric or bool. Result: dtype of x; for no elements, the minimum of the dtype.""",
    "reduce_min": """Minimum over axes. NaN-propagating.
Operand: x, numeric or bool. Result: dtype of x; for no elements, the maximum of the dtype.""",
    "argmax": """Index of the maximum along an axis. NaN counts as the maximum.
Operand: x, numeric, axis of 1 to 2^31 - 1 elements. Result: int64.""",
    "argmin": """Index of the minimum along an axis. NaN counts as the minimum.
Operand: x, numeric, axis of 1 to 2^31 - 1 elements. Result: int64.""",
    "cumsum": _map("Cumulative sum along an axis.", "numeric"),
    "cumprod": _map("Cumulative product along an axis.", "numeric"),
    "resize": """Resize by nearest, linear or cubic interpolation, as ONNX Resize.
Operand: x, numeric (mode "nearest": or bool), any shape. Result: shape `shape`, dtype of x. Integers are interpolated as floats,
rounded half to even and saturated.""",
    "roi_align": """Pool regions of interest by bilinear sampling (He et al., 2017).
Operands: x (N, C, H, W), float; rois (R, 4), dtype of x, rows (x1, y1, x2, y2); images (R,), integer, the image of each region.
Result: (R, C, *shape), dtype of x. A sample more than one element outside of the image is 0.""",
    "roi_max_pool": """Pool regions of interest by maxima of bins (Girshick, 2015).
Operands: x (N, C, H, W), float; rois (R, 5), dtype of x, rows (image, x1, y1, x2, y2), rounded to elements, ends inclusive. Result:
(R, C, *shape), dtype of x. An empty bin is 0.""",
    "grid_sample": """Sample at the coordinates of a grid (Jaderberg et al., 2015).
Operands: x (N, C, spatial...), float (mode "nearest": numeric); grid (N, positions..., number of spatial dimensions), float,
coordinates in [-1, 1], last spatial dimension first (see `elements` for another convention). Result: (N, C, positions...), dtype of
x.""",
    "scatter_nd": f"""Update slices at index vectors, as ONNX ScatterND.
Operands: x, any dtype; indices (index shape..., depth), integer: vectors that index the first `depth` axes of x; updates (index
shape..., remaining axes of x), dtype of x. {_TYPE} Without a reduction, the last update of an element wins.
{_INDICES}""",
    "scatter_along_axis": f"""Update elements along an axis, one index per update, as ONNX ScatterElements.
Operands: x, any dtype; indices, integer, of the rank of x; updates, shape of indices, dtype of x. {_TYPE} Without a reduction, the
last update of an element wins.
{_INDICES}""",
    "nonzero": """Indices of the non-zero elements, in row-major order.
Operand: x, numeric or bool. Result: (rank, count), int64.""",
    "unique": """Unique rows of a matrix.
Operand: x (rows, columns). Results, int64: index of the first occurrence of each unique row, (count,); index of the unique row of
each row, (rows,); number of occurrences of each unique row, (count,).""",
    "non_max_suppression": """Greedy non-maximum suppression: by descending score, keep boxes that overlap no kept box.
Operands, of one float dtype: boxes (B, N, 4), scores (B, classes, N), iou_threshold and score_threshold, 0-d. Boxes overlap if
the IoU > iou_threshold. Boxes with score <= score_threshold are dropped. Result: (count, 3), int64, rows (batch, class, box).""",
    "dynamic_slice": """Slice along axes by starts and ends computed at run time, as ONNX Slice.
Operands: x, any dtype; starts and ends, integer, one element per axis of `axes`. A negative start or end counts from the end; both
are clamped to the axis. Result: dtype of x; the sliced extents are existential.""",
    "reshape": """Change the shape and keep the elements in row-major order.
Operand: x, any dtype. Result: shape `shape`, where one -1 stands for the extent that fits, dtype of x.""",
    "transpose": "Permute the axes: axis k of the result is axis `perm[k]` of x.\nOperand: x, any dtype. Result: dtype of x.",
    "broadcast_to": "Broadcast to a shape.\nOperand: x, any dtype. Result: shape `shape`, dtype of x.",
    "full": "Fill a tensor with a value.\nOperand: value, 0-d, any dtype. Result: shape `shape`, dtype of value.",
    "concat": """Concatenate tensors along an axis.
Operands: xs..., at least one, of one dtype and rank and of equal extents on the other axes. Result: that dtype and rank.""",
    "strided_slice": """Slice with a begin, an end and a stride per axis. x[1:, ::2] builds such a slice.
Operand: x, any dtype. Result: dtype of x.""",
    "pad": """Pad with a constant, the edge, a reflection or periodically. Negative pads crop.
Operands: x, any dtype; with mode "constant", value, 0-d, dtype of x. Result: dtype of x.""",
    "tile": "Repeat the tensor along each axis.\nOperand: x, any dtype. Result: dtype of x.",
    "iota": """Count from 0 along an axis.
Operands: witness..., tensors whose existential sizes occur in `shape`. Result: shape `shape`, numeric dtype `dtype`.""",
    "sizes": """Return dimensions as a vector.
Operands: witness..., tensors whose existential sizes occur in `dims`. Result: (number of dims,), int64.""",
    "after": "Return x unchanged, evaluated after the other operands.\nOperands: x; witness..., any tensors.",
    "topk": """Largest or smallest k elements along an axis, sorted. NaN counts as the largest.
Operand: x, numeric or bool. Results: values, dtype of x; their indices along the axis, int64; both of extent `k` along the axis. Of
equal elements the one of lower index comes first.""",
    "conv_transpose": f"""Transposed convolution: the transpose of `conv` with respect to its data.
Operands: x (N, C, spatial...), w (C, O / groups, kernel...), of one float dtype or any integer dtypes, with 1 to 3 spatial
dimensions.
Result: (N, O, spatial...), {_PRODUCT}.""",
}
