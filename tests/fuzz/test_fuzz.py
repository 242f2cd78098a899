"""2,000 mutants, and the machinery that makes and uses them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

import numpy as np
import onnx.parser
import pytest
from tests.fuzz import pool
from tests.fuzz.__main__ import main, shares
from tests.fuzz.kinds import Packages, kinds
from tests.fuzz.models import SAMPLES
from tests.fuzz.mutate import mutated_bytes, mutated_json, mutated_message, mutated_words
from tests.fuzz.pool import Worker
from tests.fuzz.worker import TimeLimit, _end, _outcome

import inlaid
from inlaid_runtime.errors import InlaidError, PluginError


@pytest.mark.slow
def test_mutants_are_refused_or_run(tmp_path, capsys):
    """No crash, no hang, and no exception outside of Inlaid's family."""
    status = main(["--count", "2000", "--workers", "1", "--faults", str(tmp_path)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    total = next(line.split() for line in printed.splitlines() if line.startswith("total"))
    assert int(total[1]) == 2000 and int(total[2]) > 500 and int(total[3]) > 200


def test_equal_numbers_give_equal_mutants(tmp_path):
    for kind in list(kinds(tmp_path).values())[:3]:
        (tmp_path / kind.name).mkdir()
        (tmp_path / kind.name / "seed").write_bytes(_seed(kind.name))
        mutants = [kind.mutant(number) for number in range(20)]
        assert mutants == [kind.mutant(number) for number in range(20)]
        assert len(set(mutants)) > 10


def _seed(name):
    if name == "onnx":
        return SAMPLES["dense"].model().SerializeToString()
    if name == "tflite":
        return bytes(range(200))
    path = Path(os.environ["XDG_CACHE_HOME"], "fuzz.inlaid")
    inlaid.compile(SAMPLES["dense"].model(), ["x86:threads=1"]).save(path)
    return path.read_bytes()


def test_mutators_change_most_of_what_they_are_given():
    document = {"a": [1, 2, {"b": "c", "d": ["size", "n", 0, None]}], "e": True, "f": {"g": 5}}
    model = SAMPLES["dense"].model().SerializeToString()

    def message(number):
        changed = onnx.ModelProto.FromString(model)
        mutated_message(changed, Random(number), ["Relu", "Conv"])
        return changed.SerializeToString()

    assert sum(mutated_json(document, Random(number)) != document for number in range(100)) > 80
    assert sum(mutated_bytes(model, Random(number), [model]) != model for number in range(100)) > 80
    assert sum(mutated_words(model, Random(number), [model]) != model for number in range(100)) > 80
    assert sum(message(number) != model for number in range(100)) > 70


def test_shares_follow_the_weights(tmp_path):
    chosen = {name: kind for name, kind in kinds(tmp_path).items() if name in ("onnx", "package x86", "stream vta_fpga")}
    work = list(shares(chosen, 400, 7))
    assert [sum(kind == name for kind, _ in work) for name in chosen] == [250, 120, 30]
    assert [number for kind, number in work if kind == "stream vta_fpga"] == [str(number) for number in range(7, 37)]


CHEAT = """
import json, os, signal, sys, time
for line in sys.stdin:
    kind, number = line.split()
    print("start", flush=True)
    if number == "1":
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == "2":
        time.sleep(60)
    if number == "3":
        sys.exit(3)
    print("end", json.dumps({"outcome": "ran", "text": "", "where": ""}), flush=True)
"""


def test_crashes_and_hangs_are_noticed(tmp_path, monkeypatch):
    (tmp_path / "cheat.py").write_text(CHEAT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "HARD_SECONDS", 2)
    worker = Worker(tmp_path, module="cheat")
    results = [worker.use("kind", str(number)) for number in range(5)]
    worker.close()
    assert [result.outcome for result in results] == ["ran", "crash", "hang", "crash", "ran"]
    assert (results[1].text, results[3].text) == ("SIGSEGV", "exit status 3")
    assert [result.bad for result in results] == [False, True, True, True, False]


def test_outcomes_of_exceptions():
    def outcome(error, cause=None):
        try:
            raise error from cause
        except BaseException as caught:
            return _outcome(caught)["outcome"]

    assert outcome(InlaidError("no")) == "refused"
    assert outcome(KeyError("no")) == outcome(MemoryError()) == outcome(RecursionError()) == "internal"
    assert outcome(PluginError("no"), ValueError()) == "internal"
    assert outcome(PluginError("no"), InlaidError("no")) == "refused"
    assert outcome(TimeLimit()) == "hang"


@pytest.mark.parametrize("target", ["reference", "x86:threads=1"])
def test_an_endless_loop_is_no_hang(target):
    text = "g (float[2] x) => (float[2] y) { y = Loop (, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\n{text} {{ d = Constant <value = bool {{1}}> ()  t = Neg(s) }}> }}'
    )
    executable = inlaid.compile(model, [target])
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, 0.2)
    try:
        with pytest.raises(TimeLimit) as caught:
            executable.run({"x": np.ones(2, np.float32)})
        assert _outcome(caught.value)["outcome"] == "loop"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_a_mutant_is_used_again_from_its_file(tmp_path, capsys):
    kind = Packages(tmp_path, "x86", 1)
    (tmp_path / kind.name).mkdir()
    (tmp_path / kind.name / "seed").write_bytes(_seed(kind.name))
    path = tmp_path / "package_x86-3.inlaid"
    path.write_bytes(kind.seeds[0])
    assert main(["--replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith("ran: ")
    path.write_bytes(b"no package")
    assert main(["--replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith("refused: PackageError: ")
