"""Level 7: small models give correct results, on the target alone or with the host fallback."""

from __future__ import annotations

from functools import partial

from inlaid.driver.shadow import shadow
from inlaid.graph.interp import evaluate
from inlaid_conformance.case import Case, Check, Failed, NotClaimed
from inlaid_conformance.nets import NETS, Net
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import compare, model_tolerance

SEEDS = (0, 1)
"""Seeds of a model's inputs."""


def _agrees(net: Net) -> Check:
    """Make a check that the model agrees with the reference. The target runs every part that it supports."""

    def check(tested: TargetUnderTest) -> None:
        refused = tested.refused(net.module())
        if refused is not None:
            raise NotClaimed(refused)
        executable, function = tested.load_model(net.module()), net.build()
        for seed in SEEDS:
            inputs = net.inputs(seed)
            expected = evaluate(function, [inputs[param.name] for param in function.params])
            try:
                compare(function.body.type, expected, list(executable.run(inputs).values()), partial(model_tolerance, tested))
            except Failed as error:
                # Locate the difference if possible.
                difference = shadow(net.module(), inputs, [tested.text], tested.registry).difference
                raise Failed(f"{error}" if difference is None else f"{error}; {difference}") from None

    return check


CASES = tuple(Case("models", "agrees", _agrees(net), net.name) for net in NETS)
