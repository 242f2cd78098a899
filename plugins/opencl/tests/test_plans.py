"""The code of artifacts: what is written is read again, and what is damaged is refused."""

import dataclasses
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.threads.handmade import OPENCL

from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.launch_code import decode_launches, encode_launches

TEXTS = (b"[]", b"[" * 100_000, b"null", b'{"kernels": NaN}')
BROKEN = (b"", b"\xff", b"\xff" * 8, b"\x02" + bytes(7) + b"{", *(struct.pack("<Q", len(text)) + text for text in TEXTS))
ARTIFACTS = {"scaled": OPENCL.scaled(), "lookup": OPENCL.lookup(), "counted": OPENCL.counted(later=True)}


def split(code):
    """The plan, as JSON, and the program of code."""
    (length,) = struct.unpack_from("<Q", code)
    return json.loads(code[8 : 8 + length]), code[8 + length :]


def damaged(artifact, change):
    """The artifact with its plan changed, as JSON."""
    plan, program = split(artifact.code)
    change(plan)
    text = json.dumps(plan).encode()
    return dataclasses.replace(artifact, code=struct.pack("<Q", len(text)) + text + program)


@pytest.mark.parametrize("name", ARTIFACTS)
def test_code_is_read_as_it_was_written(name):
    plan, source = decode_launches(ARTIFACTS[name])
    assert encode_launches(plan, source) == ARTIFACTS[name].code


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda code: code.update(kernels=[]), "field 'kernels' is unknown"),
        (lambda code: code.update(dims=[{"dim": 3}]), "must be different names"),
        (lambda code: code["sizes"].append({"dim": ["size", "other", 0, None]}), "other has no value at run time"),
        (lambda code: code["sizes"].append({"dim": ["call", "other"]}), "expected an expression"),
        (lambda code: code["places"][0].update(storage="disk"), "expected one of .*, got 'disk'"),
        (lambda code: code["places"][0].update(index=1), "places\\[0\\].index: an integer is out of range"),
        (lambda code: code["places"][0].update(offset=-1), "places\\[0\\].offset: an integer is out of range"),
        (lambda code: code["steps"][0]["launch"].update(kernel=1), "launch.kernel"),
        (lambda code: code["steps"][0]["launch"].update(call=2), "launch.call"),
        (lambda code: code["steps"][0]["launch"].update(buffers=[9]), "launch.buffers"),
        (lambda code: code["steps"][0]["launch"].update(grid=[0, 1, 99]), "launch.sizes"),
        (lambda code: code["steps"][0].update(read={"size": 1, "buffer": 0}), "read.size"),
        (lambda code: code["steps"][0].update(read={"size": 0, "buffer": 0}), "the region does not compute dimension n"),
        (lambda code: code["steps"][0].update(body=code["steps"][1:]), "step.variable"),
    ],
)
def test_damaged_code_is_refused(change, words):
    with pytest.raises(Unsupported, match=f"the code of region is damaged: .*{words}"):
        decode_launches(damaged(ARTIFACTS["scaled"], change))


@pytest.mark.parametrize("code", BROKEN)
def test_code_that_is_none(code):
    with pytest.raises(Unsupported, match="is damaged"):
        decode_launches(dataclasses.replace(ARTIFACTS["scaled"], code=code))


def test_steps_that_nest_deeply():
    def nest(code):
        step = code["steps"][0]
        for _ in range(5000):
            step = {"launch": None, "read": None, "variable": 0, "extent": 0, "body": [step]}
        code.update(steps=[step], variables=[{"dim": ["size", "host.0", 0, None]}])

    import sys

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        artifact = damaged(ARTIFACTS["scaled"], nest)
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(Unsupported, match="is damaged"):
        decode_launches(artifact)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_random_damage(data):
    """Code with some bytes changed is refused, or is a plan all of whose numbers name something."""
    artifact = ARTIFACTS[data.draw(st.sampled_from(sorted(ARTIFACTS)))]
    code = bytearray(artifact.code)
    for _ in range(data.draw(st.integers(1, 3))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(32, 126))
    changed = dataclasses.replace(artifact, code=bytes(code))
    try:
        plan, source = decode_launches(changed)
    except Unsupported:
        return
    assert isinstance(source, bytes)
    for step in plan.steps:
        if step.launch is not None:
            assert all(0 <= number < len(plan.places) for number in step.launch.buffers)
            assert 0 <= step.launch.kernel < len(plan.kernels)
