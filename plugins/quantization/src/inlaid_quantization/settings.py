"""Settings of quantization."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from inlaid.plugins.contract import HALF_EVEN, ONCE, ROUNDINGS, Requantization
from inlaid_quantization import choices
from inlaid_runtime.errors import InputError


@dataclass(frozen=True)
class Quantization:
    """Settings of a quantization to int8.

    calibration
        How to choose a tensor's range from the observed values: "minmax", all values; "percentile", all but outliers at either
        end; "entropy", the range with the least Kullback-Leibler divergence of the stored distribution; "mse", the least mean
        squared error.
    percentile
        Percentage of observed values that the range contains, counted at either end separately.
    scales
        "any" positive number, or "power_of_two", for accelerators that requantize by shifts.
    activations
        "asymmetric": with a zero point, so that one-sided ranges, as after relu, use all 256 values; "symmetric": zero point 0.
    weights
        One scale per output "channel", or one per "tensor".
    arithmetic
        How accumulators are requantized: "fixed", by a 32-bit integer multiplier; "float", by one float32 multiplication, rounded
        half to even, which is faster on wide vector units. Either gives the same integers on every target.
    borders
        Type of the model's inputs and outputs: "float32" as in the source model, or "int8" with scales in the report.
    requantization
        Requantization that the hardware supports. With only "half_even", `arithmetic` becomes "float". Other roundings
        are chosen from the supported ones: if all are supported, "up" for products and "away" otherwise, as in TensorFlow Lite.
        Without per-channel factors, `weights` have one scale. With 1-bit multipliers, `scales` are powers of two.
    keep_float
        Operators that stay float, by source node name or operator name, such as "softmax".

    Raises `InputError` for an invalid choice.
    """

    calibration: str = choices.MINMAX
    percentile: float = 99.99
    scales: str = choices.ANY
    activations: str = choices.ASYMMETRIC
    weights: str = choices.CHANNEL
    arithmetic: str = choices.FIXED
    borders: str = choices.FLOAT32
    requantization: Requantization = field(default_factory=Requantization)
    keep_float: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, legal_values in self.choices().items():
            value = getattr(self, name)
            if value not in legal_values:
                raise InputError(f"invalid {name} {value!r}", remedy=f"choose from {', '.join(legal_values)}")
        for rounding in self.requantization.roundings:
            if rounding not in ROUNDINGS:
                raise InputError(f"invalid rounding {rounding!r} of requantization", remedy=f"choose from {', '.join(ROUNDINGS)}")
        if not isinstance(self.percentile, (int, float)) or not 50 < self.percentile <= 100:
            raise InputError(f"percentile must be above 50 and at most 100, got {self.percentile}", remedy="give one such as 99.99")
        if not isinstance(self.keep_float, tuple):
            raise InputError(
                f"keep_float must be a tuple of names, got {self.keep_float!r}", remedy='give one such as ("softmax",)'
            )

    @staticmethod
    def choices() -> dict[str, tuple[str, ...]]:
        """Return the choices of each setting that has a choice, by name."""
        return {
            "calibration": choices.CALIBRATIONS,
            "scales": choices.SCALES,
            "activations": choices.ACTIVATIONS,
            "weights": choices.WEIGHTS,
            "arithmetic": choices.ARITHMETICS,
            "borders": choices.BORDERS,
        }

    def rounding(self, usual: str) -> str:
        """Return the rounding for `multiply_fixed`: `usual` if the hardware supports it, otherwise a supported one."""
        roundings = [rounding for rounding in self.requantization.roundings if rounding != HALF_EVEN]
        return usual if not roundings or usual in roundings else roundings[0]

    @property
    def shifts(self) -> bool:
        """True if power-of-two factors are applied by shifts that round halves up."""
        roundings = self.requantization.roundings
        return not roundings or ONCE in roundings


def fitted(settings: Quantization, declared: Requantization) -> Quantization:
    """Adapt settings to the requantization that they specify or, if they specify none, to the one `declared` by the target. Raises
    `InputError` if the settings need float32, but the target does not support it."""
    requantization = settings.requantization if settings.requantization.roundings else declared
    if not requantization.roundings:
        return settings
    if settings.arithmetic == choices.FLOAT and HALF_EVEN not in requantization.roundings:
        raise InputError(
            f'arithmetic is "float", but the target supports only rounding {" and ".join(requantization.roundings)}',
            remedy='choose "fixed", or another target',
        )
    return replace(
        settings,
        requantization=requantization,
        arithmetic=choices.FLOAT if set(requantization.roundings) == {HALF_EVEN} else settings.arithmetic,
        weights=settings.weights if requantization.per_channel else choices.TENSOR,
        scales=choices.POWER_OF_TWO if requantization.multiplier_bits == 1 else settings.scales,
    )
