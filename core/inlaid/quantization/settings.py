"""How a model is quantised."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from inlaid.errors import InputError
from inlaid.plugins.contract import HALF_EVEN, ONCE, ROUNDINGS, Quantisation

MINMAX, PERCENTILE, ENTROPY, MSE = CALIBRATIONS = ("minmax", "percentile", "entropy", "mse")
ANY, POWER_OF_TWO = SCALES = ("any", "power_of_two")
ASYMMETRIC, SYMMETRIC = ACTIVATIONS = ("asymmetric", "symmetric")
CHANNEL, TENSOR = WEIGHTS = ("channel", "tensor")
FIXED, FLOAT = ARITHMETICS = ("fixed", "float")
FLOAT32, INT8 = BORDERS = ("float32", "int8")


@dataclass(frozen=True)
class Quantization:
    """The choices of a quantisation to int8.

    calibration
        How the range of a tensor follows from the values seen: "minmax", all of them; "percentile", all but the rarest at either
        end; "entropy", the range whose stored values tell most of the distribution (least Kullback-Leibler divergence); "mse",
        the least mean squared error.
    percentile
        Of the values seen, the percentage that does not exceed the range, at either end by itself.
    scales
        "any" positive number; or "power_of_two", for accelerators that shift where others multiply.
    activations
        "asymmetric": with a zero point, so that a range like that of relu has all 256 values; or "symmetric": zero is stored as 0.
    weights
        One scale for each output "channel", or one for the "tensor".
    arithmetic
        How sums are brought to the scale of the result: "fixed", by a multiplier of 32 bits in integers alone; or "float", by one
        multiplication in float32, rounded half to even, which wide vector units do faster. Either gives the same integers on every
        target.
    borders
        What the model takes and gives: "float32" as before, or "int8" as stored inside; the report has their scales.
    requantisation
        What the hardware has to bring sums to the scale of the result. Where it has "half_even" alone, `arithmetic` is "float", and
        where it has no float32, "fixed" with a rounding and with multipliers of as many bits as it has: "up" for products and
        "away" for all else, as TensorFlow Lite's kernels, where there are both. One factor for all output channels takes one scale
        for all `weights`, and multipliers of one bit `scales` that are powers of two.
    keep_float
        Operators that stay float, by the name of their node in the source, or of their kind, such as "softmax".

    Raises `InputError` for a choice that there is not.
    """

    calibration: str = MINMAX
    percentile: float = 99.99
    scales: str = ANY
    activations: str = ASYMMETRIC
    weights: str = CHANNEL
    arithmetic: str = FIXED
    borders: str = FLOAT32
    requantisation: Quantisation = field(default_factory=Quantisation)
    keep_float: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, chosen, known in (
            ("calibration", self.calibration, CALIBRATIONS),
            ("scales", self.scales, SCALES),
            ("activations", self.activations, ACTIVATIONS),
            ("weights", self.weights, WEIGHTS),
            ("arithmetic", self.arithmetic, ARITHMETICS),
            ("borders", self.borders, BORDERS),
        ):
            if chosen not in known:
                raise InputError(f"{what} is {chosen!r}", remedy=f"it is one of {', '.join(known)}")
        for rounding in self.requantisation.roundings:
            if rounding not in ROUNDINGS:
                raise InputError(f"requantisation has rounding {rounding!r}", remedy=f"it is one of {', '.join(ROUNDINGS)}")
        if not isinstance(self.percentile, (int, float)) or not 50 < self.percentile <= 100:
            raise InputError(f"percentile is {self.percentile}", remedy="it lies above 50 and is at most 100, such as 99.99")
        if not isinstance(self.keep_float, tuple):
            raise InputError(f"keep_float is {self.keep_float!r}", remedy="give a tuple of names")

    def rounding(self, usual: str) -> str:
        """How `multiply_fixed` rounds sums: `usual`, unless the hardware has another alone."""
        known = [each for each in self.requantisation.roundings if each != HALF_EVEN]
        return usual if not known or usual in known else known[0]

    @property
    def shifts(self) -> bool:
        """Whether sums whose factors are powers of two are shifted, with halves up."""
        known = self.requantisation.roundings
        return not known or ONCE in known


def fitted(settings: Quantization, declared: Quantisation) -> Quantization:
    """The settings for hardware whose requantisation is theirs, or else what it `declared`. Raises `InputError` where they ask for
    float32, and it has none."""
    having = settings.requantisation if settings.requantisation.roundings else declared
    if not having.roundings:
        return settings
    if settings.arithmetic == FLOAT and HALF_EVEN not in having.roundings:
        raise InputError(
            f'arithmetic is "float", and the target requantises with rounding {" and ".join(having.roundings)} alone',
            remedy='choose "fixed", or another target',
        )
    return replace(
        settings,
        requantisation=having,
        arithmetic=FLOAT if set(having.roundings) == {HALF_EVEN} else settings.arithmetic,
        weights=settings.weights if having.per_channel else TENSOR,
        scales=POWER_OF_TWO if having.multiplier_bits == 1 else settings.scales,
    )
