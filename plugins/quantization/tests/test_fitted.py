"""Settings for hardware with a requantization of its own."""

from __future__ import annotations

import pytest

from inlaid.plugins import Requantization
from inlaid_quantization.settings import Quantization, fitted
from inlaid_runtime.errors import InputError


@pytest.mark.parametrize(
    ("having", "changed"),
    [
        (Requantization(("half_even",)), {"arithmetic": "float"}),
        (Requantization(("half_even", "up")), {}),
        (Requantization(("up",), per_channel=False), {"weights": "tensor"}),
        (Requantization(("once",), multiplier_bits=1), {"scales": "power_of_two"}),
    ],
)
def test_what_hardware_lacks_is_not_used(having: Requantization, changed: dict[str, str]) -> None:
    assert fitted(Quantization(), having) == Quantization(**changed, requantization=having)  # type: ignore[arg-type]


def test_nothing_declared_changes_nothing() -> None:
    assert fitted(Quantization(arithmetic="float"), Requantization()) == Quantization(arithmetic="float")


def test_what_is_asked_for_wins() -> None:
    quantization = Quantization(requantization=Requantization(("up",)))
    assert fitted(quantization, Requantization(("half_even",))) == quantization


def test_floats_need_hardware_that_has_them() -> None:
    with pytest.raises(InputError, match='arithmetic is "float", but the target supports only rounding up and once'):
        fitted(Quantization(arithmetic="float"), Requantization(("up", "once")))


def test_a_rounding_has_a_name() -> None:
    with pytest.raises(InputError, match="invalid rounding 'nearest'"):
        Quantization(requantization=Requantization(("nearest",)))
