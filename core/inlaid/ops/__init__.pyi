"""Written by tools/operator_stubs.py: do not edit."""

from collections.abc import Mapping, Sequence
from typing import Final

from inlaid.graph.ir import Call, Operand
from inlaid.graph.operator import Operator
from inlaid.graph.span import Span
from inlaid.ops.notation import mean as mean
from inlaid.ops.notation import split as split
from inlaid.ops.notation import subscript as subscript
from inlaid.ops.notation import sum as sum
from inlaid_runtime.arith import Dim

FAMILIES: Mapping[str, tuple[Operator, ...]]
OPERATORS: tuple[Operator, ...]
TABLE: Mapping[str, Operator]

class _Abs(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

abs: Final[_Abs]

class _Acos(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

acos: Final[_Acos]

class _Acosh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

acosh: Final[_Acosh]

class _Add(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

add: Final[_Add]

class _After(Operator):
    def __call__(  # type: ignore[override]
        self,
        *x: Operand,
        span: Span | None = None,
    ) -> Call: ...

after: Final[_After]

class _Argmax(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        keepdims: bool = False,
        last: bool = False,
        span: Span | None = None,
    ) -> Call: ...

argmax: Final[_Argmax]

class _Argmin(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        keepdims: bool = False,
        last: bool = False,
        span: Span | None = None,
    ) -> Call: ...

argmin: Final[_Argmin]

class _Asin(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

asin: Final[_Asin]

class _Asinh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

asinh: Final[_Asinh]

class _AssertTrue(Operator):
    def __call__(  # type: ignore[override]
        self,
        condition: Operand,
        *,
        message: str,
        span: Span | None = None,
    ) -> Call: ...

assert_true: Final[_AssertTrue]

class _Atan(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

atan: Final[_Atan]

class _Atanh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

atanh: Final[_Atanh]

class _Attention(Operator):
    def __call__(  # type: ignore[override]
        self,
        q: Operand,
        k: Operand,
        v: Operand,
        mask: Operand | None = ...,
        lengths: Operand | None = ...,
        *,
        scale: float,
        softcap: float = 0.0,
        left: int = -1,
        right: int = -1,
        offset: Dim = 0,
        masked: bool = False,
        padded: bool = False,
        span: Span | None = None,
    ) -> Call: ...

attention: Final[_Attention]

class _AvgPool(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        kernel: Sequence[Dim] = (),
        count_include_pad: bool = False,
        span: Span | None = None,
    ) -> Call: ...

avg_pool: Final[_AvgPool]

class _BatchNorm(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        variance: Operand,
        *,
        epsilon: float = 1e-05,
        span: Span | None = None,
    ) -> Call: ...

batch_norm: Final[_BatchNorm]

class _BindSize(Operator):
    def __call__(  # type: ignore[override]
        self,
        value: Operand,
        check: Operand | None = ...,
        *,
        message: str,
        element: int = 0,
        span: Span | None = None,
    ) -> Call: ...

bind_size: Final[_BindSize]

class _Bitcast(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        dtype: str,
        span: Span | None = None,
    ) -> Call: ...

bitcast: Final[_Bitcast]

class _BitwiseAnd(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

bitwise_and: Final[_BitwiseAnd]

class _BitwiseNot(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

bitwise_not: Final[_BitwiseNot]

class _BitwiseOr(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

bitwise_or: Final[_BitwiseOr]

class _BitwiseXor(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

bitwise_xor: Final[_BitwiseXor]

class _BroadcastTo(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        shape: Sequence[Dim],
        span: Span | None = None,
    ) -> Call: ...

broadcast_to: Final[_BroadcastTo]

class _Cast(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        dtype: str,
        saturate: bool = True,
        round_mode: str = "up",
        denormals: bool = True,
        span: Span | None = None,
    ) -> Call: ...

cast: Final[_Cast]

class _Ceil(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

ceil: Final[_Ceil]

class _Clip(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        minimum: float = ...,
        maximum: float = ...,
        span: Span | None = None,
    ) -> Call: ...

clip: Final[_Clip]

class _Col2Im(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        shape: Sequence[Dim] = (),
        kernel: Sequence[int] = (),
        span: Span | None = None,
    ) -> Call: ...

col2im: Final[_Col2Im]

class _Concat(Operator):
    def __call__(  # type: ignore[override]
        self,
        *xs: Operand,
        axis: int,
        span: Span | None = None,
    ) -> Call: ...

concat: Final[_Concat]

class _Conv(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        groups: int = 1,
        out_dtype: str = "",
        span: Span | None = None,
    ) -> Call: ...

conv: Final[_Conv]

class _ConvTranspose(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        groups: int = 1,
        out_dtype: str = "",
        output_padding: Sequence[Dim] = (),
        span: Span | None = None,
    ) -> Call: ...

conv_transpose: Final[_ConvTranspose]

class _Cos(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

cos: Final[_Cos]

class _Cosh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

cosh: Final[_Cosh]

class _Cumprod(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        span: Span | None = None,
    ) -> Call: ...

cumprod: Final[_Cumprod]

class _Cumsum(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        exclusive: bool = False,
        reverse: bool = False,
        span: Span | None = None,
    ) -> Call: ...

cumsum: Final[_Cumsum]

class _DeformConv(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        offset: Operand,
        mask: Operand | None = ...,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        groups: int = 1,
        offset_groups: int = 1,
        span: Span | None = None,
    ) -> Call: ...

deform_conv: Final[_DeformConv]

class _Dequantize(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        zero_point: Operand | None = ...,
        *,
        dtype: str,
        axis: int = 0,
        block_size: int = 0,
        span: Span | None = None,
    ) -> Call: ...

dequantize: Final[_Dequantize]

class _Det(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

det: Final[_Det]

class _Div(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

div: Final[_Div]

class _DynamicSlice(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        starts: Operand,
        ends: Operand,
        *,
        axes: Sequence[int],
        strides: Sequence[int],
        span: Span | None = None,
    ) -> Call: ...

dynamic_slice: Final[_DynamicSlice]

class _Equal(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

equal: Final[_Equal]

class _Erf(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

erf: Final[_Erf]

class _Exp(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

exp: Final[_Exp]

class _Expm1(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

expm1: Final[_Expm1]

class _Fail(Operator):
    def __call__(  # type: ignore[override]
        self,
        *,
        kinds: Sequence[str],
        dtype: str = "",
        shape: Sequence[Dim] = (),
        message: str = "",
        span: Span | None = None,
    ) -> Call: ...

fail: Final[_Fail]

class _Floor(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

floor: Final[_Floor]

class _Fmod(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

fmod: Final[_Fmod]

class _Full(Operator):
    def __call__(  # type: ignore[override]
        self,
        value: Operand,
        *,
        shape: Sequence[Dim],
        span: Span | None = None,
    ) -> Call: ...

full: Final[_Full]

class _GatherNd(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        indices: Operand,
        *,
        batch_dims: int = 0,
        span: Span | None = None,
    ) -> Call: ...

gather_nd: Final[_GatherNd]

class _Gelu(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        approximate: bool = False,
        span: Span | None = None,
    ) -> Call: ...

gelu: Final[_Gelu]

class _GridSample(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        grid: Operand,
        *,
        mode: str = "linear",
        padding: str = "zeros",
        align_corners: bool = False,
        elements: bool = False,
        span: Span | None = None,
    ) -> Call: ...

grid_sample: Final[_GridSample]

class _Gru(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        r: Operand,
        b: Operand,
        h: Operand,
        lengths: Operand | None = ...,
        *,
        direction: str = "forward",
        activations: Sequence[str] = (),
        alphas: Sequence[float] = (),
        betas: Sequence[float] = (),
        clip: float = 0.0,
        masked: bool = False,
        linear_before_reset: bool = False,
        span: Span | None = None,
    ) -> Call: ...

gru: Final[_Gru]

class _HostWiden(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        kinds: Sequence[str],
        dtype: str = "",
        shape: Sequence[Dim] = (),
        span: Span | None = None,
    ) -> Call: ...

host_widen: Final[_HostWiden]

class _Iota(Operator):
    def __call__(  # type: ignore[override]
        self,
        *operands: Operand,
        shape: Sequence[Dim],
        axis: int = 0,
        dtype: str = "int64",
        span: Span | None = None,
    ) -> Call: ...

iota: Final[_Iota]

class _Isinf(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        negative: bool = True,
        positive: bool = True,
        span: Span | None = None,
    ) -> Call: ...

isinf: Final[_Isinf]

class _Isnan(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

isnan: Final[_Isnan]

class _LayerNorm(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        bias: Operand | None = ...,
        *,
        axis: int,
        epsilon: float = 1e-05,
        span: Span | None = None,
    ) -> Call: ...

layer_norm: Final[_LayerNorm]

class _Less(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

less: Final[_Less]

class _LessEqual(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

less_equal: Final[_LessEqual]

class _Log(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

log: Final[_Log]

class _Log1P(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

log1p: Final[_Log1P]

class _LogSoftmax(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        span: Span | None = None,
    ) -> Call: ...

log_softmax: Final[_LogSoftmax]

class _LogicalAnd(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

logical_and: Final[_LogicalAnd]

class _LogicalNot(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

logical_not: Final[_LogicalNot]

class _LogicalOr(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

logical_or: Final[_LogicalOr]

class _LogicalXor(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

logical_xor: Final[_LogicalXor]

class _Lookup(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        keys: Sequence[str | int | float],
        values: Sequence[str | int | float],
        default: str | int | float,
        dtype: str,
        span: Span | None = None,
    ) -> Call: ...

lookup: Final[_Lookup]

class _Lrn(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        bias: float = 1.0,
        span: Span | None = None,
    ) -> Call: ...

lrn: Final[_Lrn]

class _Lstm(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        r: Operand,
        b: Operand,
        h: Operand,
        c: Operand,
        peephole_: Operand | None = ...,
        lengths: Operand | None = ...,
        *,
        direction: str = "forward",
        activations: Sequence[str] = (),
        alphas: Sequence[float] = (),
        betas: Sequence[float] = (),
        clip: float = 0.0,
        masked: bool = False,
        coupled: bool = False,
        peephole: bool = False,
        span: Span | None = None,
    ) -> Call: ...

lstm: Final[_Lstm]

class _Matmul(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        out_dtype: str = "",
        span: Span | None = None,
    ) -> Call: ...

matmul: Final[_Matmul]

class _MaxPool(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        kernel: Sequence[Dim] = (),
        span: Span | None = None,
    ) -> Call: ...

max_pool: Final[_MaxPool]

class _MaxPoolIndices(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        strides: Sequence[int] = (),
        pads: Sequence[Dim] = (),
        dilations: Sequence[int] = (),
        kernel: Sequence[Dim] = (),
        column_major: bool = False,
        span: Span | None = None,
    ) -> Call: ...

max_pool_indices: Final[_MaxPoolIndices]

class _Maximum(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

maximum: Final[_Maximum]

class _Minimum(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

minimum: Final[_Minimum]

class _Mod(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

mod: Final[_Mod]

class _Mul(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

mul: Final[_Mul]

class _MultiplyFixed(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        multiplier: Operand,
        shift: Operand,
        *,
        axis: int = 0,
        rounding: str = "up",
        span: Span | None = None,
    ) -> Call: ...

multiply_fixed: Final[_MultiplyFixed]

class _Neg(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

neg: Final[_Neg]

class _NonMaxSuppression(Operator):
    def __call__(  # type: ignore[override]
        self,
        boxes: Operand,
        scores: Operand,
        iou_threshold: Operand,
        score_threshold: Operand,
        *,
        max_output: Dim,
        center: bool = False,
        span: Span | None = None,
    ) -> Call: ...

non_max_suppression: Final[_NonMaxSuppression]

class _Nonzero(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

nonzero: Final[_Nonzero]

class _OptionalGet(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

optional_get: Final[_OptionalGet]

class _OptionalHas(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

optional_has: Final[_OptionalHas]

class _OptionalNone(Operator):
    def __call__(  # type: ignore[override]
        self,
        *,
        kinds: Sequence[str],
        dtype: str = "",
        shape: Sequence[Dim] = (),
        span: Span | None = None,
    ) -> Call: ...

optional_none: Final[_OptionalNone]

class _OptionalSome(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

optional_some: Final[_OptionalSome]

class _Pad(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        value: Operand | None = ...,
        *,
        pads: Sequence[Dim],
        mode: str = "constant",
        span: Span | None = None,
    ) -> Call: ...

pad: Final[_Pad]

class _Pow(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

pow: Final[_Pow]

class _Quantize(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        zero_point: Operand | None = ...,
        *,
        dtype: str,
        axis: int = 0,
        block_size: int = 0,
        saturate: bool = True,
        span: Span | None = None,
    ) -> Call: ...

quantize: Final[_Quantize]

class _RandomNormal(Operator):
    def __call__(  # type: ignore[override]
        self,
        state: Operand,
        *,
        shape: Sequence[Dim],
        dtype: str = "float32",
        span: Span | None = None,
    ) -> Call: ...

random_normal: Final[_RandomNormal]

class _RandomUniform(Operator):
    def __call__(  # type: ignore[override]
        self,
        state: Operand,
        *,
        shape: Sequence[Dim],
        dtype: str = "float32",
        span: Span | None = None,
    ) -> Call: ...

random_uniform: Final[_RandomUniform]

class _ReduceMax(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axes: Sequence[int],
        keepdims: bool = False,
        span: Span | None = None,
    ) -> Call: ...

reduce_max: Final[_ReduceMax]

class _ReduceMin(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axes: Sequence[int],
        keepdims: bool = False,
        span: Span | None = None,
    ) -> Call: ...

reduce_min: Final[_ReduceMin]

class _ReduceProd(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axes: Sequence[int],
        keepdims: bool = False,
        span: Span | None = None,
    ) -> Call: ...

reduce_prod: Final[_ReduceProd]

class _ReduceSum(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axes: Sequence[int],
        keepdims: bool = False,
        span: Span | None = None,
    ) -> Call: ...

reduce_sum: Final[_ReduceSum]

class _RegexFullMatch(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        pattern: str,
        span: Span | None = None,
    ) -> Call: ...

regex_full_match: Final[_RegexFullMatch]

class _Relu(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

relu: Final[_Relu]

class _Requantize(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        zero_point: Operand,
        *,
        dtype: str,
        axis: int = 0,
        rounding: str = "half_even",
        span: Span | None = None,
    ) -> Call: ...

requantize: Final[_Requantize]

class _Reshape(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        shape: Sequence[Dim],
        span: Span | None = None,
    ) -> Call: ...

reshape: Final[_Reshape]

class _Resize(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        shape: Sequence[Dim],
        scales: Sequence[float] = (),
        mode: str = "nearest",
        coordinates: str = "half_pixel",
        rounding: str = "round_prefer_floor",
        cubic_a: float = -0.75,
        antialias: bool = False,
        exclude_outside: bool = False,
        crop: Sequence[float] = (),
        outside: float = 0.0,
        span: Span | None = None,
    ) -> Call: ...

resize: Final[_Resize]

class _ReverseSequence(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        lengths: Operand,
        *,
        batch_axis: int,
        time_axis: int,
        span: Span | None = None,
    ) -> Call: ...

reverse_sequence: Final[_ReverseSequence]

class _RmsNorm(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        scale: Operand,
        *,
        axis: int,
        epsilon: float = 1e-05,
        span: Span | None = None,
    ) -> Call: ...

rms_norm: Final[_RmsNorm]

class _Rnn(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        w: Operand,
        r: Operand,
        b: Operand,
        h: Operand,
        lengths: Operand | None = ...,
        *,
        direction: str = "forward",
        activations: Sequence[str] = (),
        alphas: Sequence[float] = (),
        betas: Sequence[float] = (),
        clip: float = 0.0,
        masked: bool = False,
        span: Span | None = None,
    ) -> Call: ...

rnn: Final[_Rnn]

class _RoiAlign(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        rois: Operand,
        images: Operand,
        *,
        shape: tuple[int, int] = (1, 1),
        sampling: int = 0,
        scale: float = 1.0,
        half_pixel: bool = True,
        maximum: bool = False,
        span: Span | None = None,
    ) -> Call: ...

roi_align: Final[_RoiAlign]

class _RoiMaxPool(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        rois: Operand,
        *,
        shape: tuple[int, int] = (1, 1),
        scale: float = 1.0,
        span: Span | None = None,
    ) -> Call: ...

roi_max_pool: Final[_RoiMaxPool]

class _Round(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

round: Final[_Round]

class _ScatterAlongAxis(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        indices: Operand,
        updates: Operand,
        *,
        axis: int,
        reduction: str = "none",
        span: Span | None = None,
    ) -> Call: ...

scatter_along_axis: Final[_ScatterAlongAxis]

class _ScatterNd(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        indices: Operand,
        updates: Operand,
        *,
        reduction: str = "none",
        span: Span | None = None,
    ) -> Call: ...

scatter_nd: Final[_ScatterNd]

class _SequenceAt(Operator):
    def __call__(  # type: ignore[override]
        self,
        sequence: Operand,
        position: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sequence_at: Final[_SequenceAt]

class _SequenceConstruct(Operator):
    def __call__(  # type: ignore[override]
        self,
        *items: Operand,
        span: Span | None = None,
    ) -> Call: ...

sequence_construct: Final[_SequenceConstruct]

class _SequenceEmpty(Operator):
    def __call__(  # type: ignore[override]
        self,
        *,
        span: Span | None = None,
    ) -> Call: ...

sequence_empty: Final[_SequenceEmpty]

class _SequenceErase(Operator):
    def __call__(  # type: ignore[override]
        self,
        sequence: Operand,
        position: Operand | None = ...,
        *,
        span: Span | None = None,
    ) -> Call: ...

sequence_erase: Final[_SequenceErase]

class _SequenceInsert(Operator):
    def __call__(  # type: ignore[override]
        self,
        sequence: Operand,
        item: Operand,
        position: Operand | None = ...,
        *,
        span: Span | None = None,
    ) -> Call: ...

sequence_insert: Final[_SequenceInsert]

class _SequenceJoin(Operator):
    def __call__(  # type: ignore[override]
        self,
        sequence: Operand,
        *,
        axis: int,
        new_axis: bool = False,
        span: Span | None = None,
    ) -> Call: ...

sequence_join: Final[_SequenceJoin]

class _SequenceLength(Operator):
    def __call__(  # type: ignore[override]
        self,
        sequence: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sequence_length: Final[_SequenceLength]

class _SequenceSplit(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        sizes: Operand | None = ...,
        *,
        axis: int,
        keepdims: bool = True,
        span: Span | None = None,
    ) -> Call: ...

sequence_split: Final[_SequenceSplit]

class _ShiftLeft(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

shift_left: Final[_ShiftLeft]

class _ShiftRight(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

shift_right: Final[_ShiftRight]

class _Sigmoid(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sigmoid: Final[_Sigmoid]

class _Sign(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sign: Final[_Sign]

class _Sin(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sin: Final[_Sin]

class _Sinh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sinh: Final[_Sinh]

class _Sizes(Operator):
    def __call__(  # type: ignore[override]
        self,
        *operands: Operand,
        dims: Sequence[Dim],
        span: Span | None = None,
    ) -> Call: ...

sizes: Final[_Sizes]

class _Softmax(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        axis: int,
        span: Span | None = None,
    ) -> Call: ...

softmax: Final[_Softmax]

class _Sqrt(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sqrt: Final[_Sqrt]

class _StridedSlice(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        begin: Sequence[Dim],
        end: Sequence[Dim],
        strides: Sequence[int],
        span: Span | None = None,
    ) -> Call: ...

strided_slice: Final[_StridedSlice]

class _StringCast(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        dtype: str,
        span: Span | None = None,
    ) -> Call: ...

string_cast: Final[_StringCast]

class _StringConcat(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

string_concat: Final[_StringConcat]

class _StringEqual(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

string_equal: Final[_StringEqual]

class _StringNormalize(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        case: str = "NONE",
        case_sensitive: bool = False,
        stopwords: Sequence[str] = (),
        span: Span | None = None,
    ) -> Call: ...

string_normalize: Final[_StringNormalize]

class _StringSplit(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        delimiter: str = "",
        maxsplit: int = -1,
        span: Span | None = None,
    ) -> Call: ...

string_split: Final[_StringSplit]

class _Sub(Operator):
    def __call__(  # type: ignore[override]
        self,
        a: Operand,
        b: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

sub: Final[_Sub]

class _Take(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        indices: Operand,
        *,
        axis: int,
        span: Span | None = None,
    ) -> Call: ...

take: Final[_Take]

class _TakeAlongAxis(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        indices: Operand,
        *,
        axis: int,
        span: Span | None = None,
    ) -> Call: ...

take_along_axis: Final[_TakeAlongAxis]

class _Tan(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

tan: Final[_Tan]

class _Tanh(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

tanh: Final[_Tanh]

class _Tile(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        repeats: Sequence[Dim],
        span: Span | None = None,
    ) -> Call: ...

tile: Final[_Tile]

class _Topk(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        k: Dim,
        axis: int,
        largest: bool = True,
        span: Span | None = None,
    ) -> Call: ...

topk: Final[_Topk]

class _Transpose(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        perm: Sequence[int],
        span: Span | None = None,
    ) -> Call: ...

transpose: Final[_Transpose]

class _Unique(Operator):
    def __call__(  # type: ignore[override]
        self,
        x: Operand,
        *,
        ordered: bool = True,
        span: Span | None = None,
    ) -> Call: ...

unique: Final[_Unique]

class _Where(Operator):
    def __call__(  # type: ignore[override]
        self,
        condition: Operand,
        x: Operand,
        y: Operand,
        *,
        span: Span | None = None,
    ) -> Call: ...

where: Final[_Where]
