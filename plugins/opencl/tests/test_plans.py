"""The code of artifacts: what is written is read again, and what is damaged is refused."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.errors import Unsupported
from inlaid_opencl.plans import decode_code, encode_code

from .handmade import counted, lookup, scaled

MADE = {"scaled": scaled(), "lookup": lookup(), "counted": counted(later=True)}


def damaged(made, change):
    """The artifact with its code changed, as JSON."""
    fields = json.loads(made.code)
    change(fields)
    return dataclasses.replace(made, code=json.dumps(fields).encode())


@pytest.mark.parametrize("name", MADE)
def test_code_is_read_as_it_was_written(name):
    plan, source = decode_code(MADE[name])
    assert encode_code(plan, source) == MADE[name].code


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda code: code.pop("source"), "'source' is missing"),
        (lambda code: code.update(source=3), "where str is due"),
        (lambda code: code["plan"].update(kernels=[]), "do not fit the signature"),
        (lambda code: code["plan"].update(dims=[{"dim": 3}]), "a dimension is no name"),
        (lambda code: code["plan"]["sizes"].append({"dim": ["size", "other", 0, None]}), "names no dimension"),
        (lambda code: code["plan"]["sizes"].append({"dim": ["call", "other"]}), "no expression"),
        (lambda code: code["plan"]["places"][0].update(storage="disk"), "'disk' is no storage"),
        (lambda code: code["plan"]["places"][0].update(index=1), "places\\[0\\].index: an integer is out of range"),
        (lambda code: code["plan"]["places"][0].update(offset=-1), "places\\[0\\].offset: an integer is out of range"),
        (lambda code: code["plan"]["steps"][0]["launch"].update(kernel=1), "launch.kernel"),
        (lambda code: code["plan"]["steps"][0]["launch"].update(call=2), "launch.call"),
        (lambda code: code["plan"]["steps"][0]["launch"].update(buffers=[9]), "launch.buffers"),
        (lambda code: code["plan"]["steps"][0]["launch"].update(grid=[0, 1, 99]), "launch.sizes"),
        (lambda code: code["plan"]["steps"][0].update(read={"size": 1, "buffer": 0}), "read.size"),
        (lambda code: code["plan"]["steps"][0].update(read={"size": 0, "buffer": 0}), "several things"),
        (lambda code: code["plan"]["steps"][0].update(body=code["plan"]["steps"][1:]), "step.variable"),
    ],
)
def test_damaged_code_is_refused(change, words):
    with pytest.raises(Unsupported, match=f"the code of region is damaged: .*{words}"):
        decode_code(damaged(MADE["scaled"], change))


@pytest.mark.parametrize("code", [b"", b"\xff", b"[]", b"[" * 100_000, b"null", b'{"plan": NaN, "source": ""}'])
def test_code_that_is_none(code):
    with pytest.raises(Unsupported, match="is damaged"):
        decode_code(dataclasses.replace(MADE["scaled"], code=code))


def test_steps_that_nest_deeply():
    def nest(code):
        step = code["plan"]["steps"][0]
        for _ in range(5000):
            step = {"launch": None, "read": None, "variable": 0, "extent": 0, "body": [step]}
        code["plan"].update(steps=[step], variables=[{"dim": ["size", "host.0", 0, None]}])

    text = MADE["scaled"].code
    fields = json.loads(text)
    import sys

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        nest(fields)
        code = json.dumps(fields).encode()
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(Unsupported, match="is damaged"):
        decode_code(dataclasses.replace(MADE["scaled"], code=code))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_random_damage(data):
    """Code with some bytes changed is refused, or is a plan all of whose numbers name something."""
    made = MADE[data.draw(st.sampled_from(sorted(MADE)))]
    code = bytearray(made.code)
    for _ in range(data.draw(st.integers(1, 3))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(32, 126))
    changed = dataclasses.replace(made, code=bytes(code))
    try:
        plan, source = decode_code(changed)
    except Unsupported:
        return
    assert isinstance(source, str)
    for step in plan.steps:
        if step.launch is not None:
            assert all(0 <= number < len(plan.places) for number in step.launch.buffers)
            assert 0 <= step.launch.kernel < len(plan.kernels)
