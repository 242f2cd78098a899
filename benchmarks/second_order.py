"""Find passes and rules that nothing would miss: take each away in turn, and compare the code that is generated for models.

    python benchmarks/second_order.py survey [--quick] [--share 1/2] [--case TARGETS MODEL]
    python benchmarks/second_order.py trials [--only REGEX] [--limit SECONDS]
    python benchmarks/second_order.py times [--only REGEX] [--limit SECONDS]
    python benchmarks/second_order.py counts [--only REGEX]
    python benchmarks/second_order.py table

A part is a pass under the pass manager, a rewrite rule, or a schedule rule; a pass that a list has more than once is also tried at
each position. To take a part away, the manager skips the pass, the rewriter leaves out the rule, or the rule makes no offer.

1. `survey` compiles each case of `cases` to text and notes which parts fired: a pass returned another object, a rule replaced an
   expression, or a schedule rule made an offer. A part that did not fire on a case cannot change it.
2. `trials` takes each part away on the cases where it fired: those of devices first, where a difference ends the trial, since
   opencl and cuda text must stay equal; then all others. Of both, cheap ones come first, in an arbitrary order.
3. `times` compiles the x86 cases that differ with and without the part and runs both in turns in this process: the ratio of the
   least processor times, and of the bytes of the packages. `counts` does the same for instructions on emulated Cortex-M (see
   `micro.py`). Both end for a part with a case that is clearly slower, or that takes 2 % more of a count.
4. `table` prints what is known of each part, for docs/second-order.md.

Every result is appended to a file as a line of JSON, so the whole may be done in pieces; no result is repeated while the file has
it. A trial is a process of its own, so that nothing that one compilation caches reaches another. `survey` takes 40 minutes of
processor time, `trials` an hour; only `times` needs LLVM, and only `counts` an emulator.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import inlaid
import micro
import recorded
import variants
from cliffs import WHOLE_MODELS
from inlaid.driver import build_package
from inlaid.graph import rewrite
from inlaid.lowering.selection import choose
from inlaid.passes.manager import PassManager
from inlaid.settings import Settings
from inlaid.tensor.scheduling import trace
from inlaid_microcontroller.boards import board_for
from inlaid_microcontroller.export import example
from inlaid_runtime.errors import InlaidError
from real import corpus
from real.model import Draw, NotInstalledError
from sweep_cases import CASES as OPERATORS
from zoo import MODELS, feeds, model_path

RESULTS = Path(__file__).parents[1] / "build" / "second_order.jsonl"
AVX2, AVX512, AMX = (f"x86:threads=1,cpu={cpu}" for cpu in ("x86-64-v3", "cascadelake", "sapphirerapids"))
DEVICES = ("opencl:kind=gpu", "cuda:arch=sm_80")
DEVICE_KINDS = ("opencl", "cuda")
OPERATOR, VARIANT, REAL = "operator: ", "variant: ", "real: "
"""Prefixes of the models of `sweep.py`, of the matrix of variants, and of the corpus of exported models."""
BF16 = " in bf16"
"""Suffix of the models of `recorded.py` whose products are computed in bfloat16."""
IN_BF16 = (
    "resnet50",
    "squeezenet",
    "shufflenet",
    *(f"{name}{recorded.TINY_SUFFIX}" for name in ("bert_base", "gpt2_step", "lstm", "seq2seq", "crnn", "detector", "dcgan")),
)
SLOWER = 1.1
"""Ratio that ends the measurements of a part: no repetition will bring it below the 1.02 from which a part is missed."""
GREATER = 1.02
"""Ratio from which a count is greater."""
PATIENCE, LEAST_PATIENCE = 10, 60
"""How often the time of its compilation a case may take without a part, and seconds that each may take."""
FAST = 2.0
"""Seconds up to which a compilation is cheap."""
ROUND, ROUNDS = 0.02, 40
"""Seconds of a round, and rounds, of a measurement of time."""


@dataclass(frozen=True, order=True)
class Subject:
    """A model on targets."""

    targets: str
    model: str

    @property
    def is_device(self) -> bool:
        return self.targets.startswith(DEVICE_KINDS)


def cases(quick: bool = False) -> list[Subject]:
    """List what is compiled: the cases of `recorded.py`, some in bfloat16 too; the models of MLPerf Tiny on all targets; the cases
    of `sweep.py` at every size for AVX2 and AVX-512 and at one size and symbolically for devices; the matrix of variants, without
    whole models, for AVX2, AVX-512 and AMX; the corpus of exported models, as far as they are installed, for AVX2."""
    recorded_cases = recorded.QUICK if quick else recorded.CASES
    listed = [Subject(targets, model) for targets, models in recorded_cases.items() for model in models]
    listed += (Subject(targets, model) for targets in (AVX2, AVX512, *DEVICES) for model in recorded.MLPERF)
    listed += (Subject(targets, f"{model}{BF16}") for targets in (AVX2, AVX512, AMX) for model in IN_BF16)
    for case in OPERATORS:
        forms = [*case.sizes, *(["symbolic"] if any(case.sizes.values()) else [])]
        for form in forms:
            targets = (AVX2, AVX512, *(DEVICES if form in ("typical", "symbolic") or len(forms) == 1 else ()))
            listed += (Subject(target, f"{OPERATOR}{case.name}, {form}") for target in targets)
    rows = [name for name in variants.rows() if not WHOLE_MODELS.match(name)]
    listed += (Subject(target, f"{VARIANT}{name}") for name in rows for target in (AVX2, AVX512, AMX))
    listed += (Subject(AVX2, f"{REAL}{name}") for name in corpus())
    return listed[::10] if quick else listed


def texts(subject: Subject) -> dict[str, str]:
    """Return the texts of a case by item, as `recorded.texts` does."""
    is_bf16 = subject.model.endswith(BF16)
    if not is_bf16 and not subject.model.startswith((OPERATOR, VARIANT, REAL)):
        return recorded.texts(subject.targets, subject.model, recorded.MLPERF_FOLDER)
    try:
        settings = Settings(precision="bf16") if is_bf16 else recorded.SETTINGS
        return recorded.module_texts(inlaid.load(_built(subject.model)[0]), [subject.targets], settings)
    except (InlaidError, NotInstalledError) as error:
        return {recorded.ERROR: str(error)}


def _built(model: str) -> tuple[onnx.ModelProto, Callable[[], dict[str, Any]]]:
    """Return the ONNX model of a case that is no file of MLPerf Tiny, and what makes its inputs."""
    if model.startswith(VARIANT):
        row = variants.rows()[model.removeprefix(VARIANT)]
        built = row.build()
        return built, lambda: row.feeds(built)
    if model.startswith(REAL):
        entry = corpus()[model.removeprefix(REAL)]
        return entry.load(), lambda: dict(entry.feeds(Draw(0), *entry.sizes[0]))
    if model.startswith(OPERATOR):
        name, _, form = model.removeprefix(OPERATOR).rpartition(", ")
        case = next(case for case in OPERATORS if case.name == name)
        is_symbolic = form == "symbolic"
        sizes = list(case.sizes.values())[-1] if is_symbolic else case.sizes[form]
        return case.model({} if is_symbolic else sizes), lambda: case.feeds(sizes)
    model = model.removesuffix(BF16)
    stem = model.removesuffix(recorded.TINY_SUFFIX).removesuffix(recorded.SYMBOLIC_SUFFIX)
    tiny, is_symbolic = (model.endswith(suffix) for suffix in (recorded.TINY_SUFFIX, recorded.SYMBOLIC_SUFFIX))
    built, symbolic = onnx.load(model_path(stem, tiny, None, is_symbolic)), MODELS[stem].symbolic
    sizes = symbolic.draw(np.random.default_rng(0)) if is_symbolic and symbolic is not None else {}
    return built, lambda: feeds(built, sizes=sizes)


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Skipped:
    """Stands in for a pass that is taken away."""

    name: str
    requires: tuple[str, ...]

    def run(self, unit: Any) -> Any:
        return unit


@dataclass(frozen=True)
class _Watched:
    """A pass that notes under `keys` that it changed something."""

    step: Any
    keys: tuple[str, ...]
    firings: Firings

    @property
    def name(self) -> str:
        return str(self.step.name)

    @property
    def requires(self) -> tuple[str, ...]:
        return tuple(self.step.requires)

    def run(self, unit: Any) -> Any:
        changed = self.step.run(unit)
        if changed is not unit:
            self.firings.fired.update(self.keys)
        return changed


@dataclass(eq=False)
class Firings:
    """The parts that a compilation used, and those that fired."""

    used: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)


@contextmanager
def without(parts: Iterable[str], firings: Firings) -> Iterator[None]:
    """Take parts away from the compiler, and note what fires of the others."""
    absent = frozenset(parts)
    run, create, apply, collect = PassManager.run, rewrite._Rewriter.__init__, rewrite._Rewriter._apply, trace.collect_offers

    def run_present(manager: PassManager[Any], unit: Any) -> Any:
        counts, positions, steps = Counter(step.name for step in manager.passes), Counter[str](), []
        for step in manager.passes:
            positions[step.name] += 1
            repeated = counts[step.name] > 1
            keys = (
                f"pass {step.name}",
                *([f"pass {step.name}, {positions[step.name]} of {counts[step.name]}"] if repeated else ()),
            )
            firings.used.update(keys)
            steps.append(_Watched(step, keys, firings) if absent.isdisjoint(keys) else _Skipped(step.name, step.requires))
        return run(PassManager(tuple(steps), manager.instruments), unit)

    def create_present(self: Any, rules: Sequence[rewrite.RewriteRule]) -> None:
        keys = {f"rewrite {rule.name}": rule for rule in rules}
        firings.used.update(keys)
        create(self, [rule for key, rule in keys.items() if key not in absent])

    def apply_noted(self: Any, expr: Any) -> Any:
        name, replacement = apply(self, expr)
        if replacement is not None:
            firings.fired.add(f"rewrite {name}")
        return name, replacement

    def collect_present(rule: Any, *arguments: Any) -> tuple[Any, ...]:
        key = f"schedule {rule.name}"
        firings.used.add(key)
        offers = () if key in absent else collect(rule, *arguments)
        if offers:
            firings.fired.add(key)
        return offers

    with (
        mock.patch.object(PassManager, "run", run_present),
        mock.patch.object(rewrite._Rewriter, "__init__", create_present),
        mock.patch.object(rewrite._Rewriter, "_apply", apply_noted),
        mock.patch.object(trace, "collect_offers", collect_present),
        mock.patch.object(choose, "collect_offers", collect_present),
    ):
        yield


@dataclass(frozen=True)
class Outcome:
    """A compilation: a digest of its texts, the error in their place, the seconds that it took, and its parts."""

    digest: str
    error: str = ""
    seconds: float = 0.0
    used: Sequence[str] = ()
    fired: Sequence[str] = ()


def outcome(subject: Subject, parts: Iterable[str] = ()) -> Outcome:
    """Compile a case without some parts."""
    firings, start = Firings(), time.process_time()
    with warnings.catch_warnings(), without(parts, firings):
        warnings.simplefilter("ignore")
        try:
            printed = texts(subject)
        except Exception as error:  # a missing part may break anything
            printed = {recorded.ERROR: f"{type(error).__name__}: {error}"}
    digest = hashlib.sha256(json.dumps(sorted(printed.items())).encode()).hexdigest()[:16]
    error_text = " ".join(printed.get(recorded.ERROR, "").split())[:200]
    seconds = round(time.process_time() - start, 3)
    return Outcome(digest, error_text, seconds, sorted(firings.used), sorted(firings.fired))


def isolated(subject: Subject, parts: Iterable[str], patience: float) -> Outcome:
    """Compile a case in a process of its own, which ends after `patience` seconds of processor time or so."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        signal.setitimer(signal.ITIMER_PROF, patience)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            json.dump(vars(outcome(subject, parts)), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        return Outcome("", f"the compilation takes more than {patience:.0f} s" if status == signal.SIGPROF else f"status {status}")
    return Outcome(**json.loads(answer))


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """The lines of the file of results."""

    path: Path

    def write(self, kind: str, **facts: Any) -> None:
        """Append a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"kind": kind, **facts}) + "\n")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind, without those that were cut off while they were written."""
        lines = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):
                    lines.append(json.loads(line))
        return [line for line in lines if line["kind"] == kind]


def survey(results: Results, subjects: Sequence[Subject]) -> None:
    """Compile cases, and note what fires."""
    surveyed = {_subject(line) for line in results.of("survey") if not line["error"]}
    known: set[str] = set()
    for subject in subjects:
        if subject in surveyed:
            continue
        compiled = isolated(subject, (), 600)
        unseen = sorted({*compiled.used} - known)
        known.update(unseen)
        facts = {**vars(subject), **vars(compiled), "used": unseen}
        results.write("survey", **facts)
        print(f"{subject.targets} {subject.model}: {compiled.seconds} s {compiled.error}", flush=True)


def trials(results: Results, search: Callable[[str], object], limit: float) -> None:
    """Take each part away on the cases where it fired."""
    lines = [line for line in results.of("survey") if not line["error"]]
    tried = {line["part"] for line in results.of("trial")}
    for part in sorted({part for line in lines for part in line["fired"]}):
        if part in tried or not search(part):
            continue
        firing = [line for line in lines if part in line["fired"]]
        firing.sort(key=lambda line: (not _subject(line).is_device, line["seconds"] > FAST, line["digest"]))
        facts = _trial(part, firing, limit)
        results.write("trial", part=part, firing=len(firing), **facts)
        print(f"{part}: {facts['verdict']}; {len(facts['differing'])} of {facts['tried']} differ", flush=True)


def _subject(line: Mapping[str, Any]) -> Subject:
    return Subject(line["targets"], line["model"])


def _trial(part: str, firing: Sequence[Mapping[str, Any]], limit: float) -> dict[str, Any]:
    """Take one part away: until a case cannot be compiled, or the text of a device differs, or the time is up."""
    until, differing = time.process_time() + _children() + limit, []
    for number, line in enumerate(firing, 1):
        subject = _subject(line)
        compiled = isolated(subject, (part,), max(PATIENCE * line["seconds"], LEAST_PATIENCE))
        if compiled.digest != line["digest"]:
            differing.append([subject.targets, subject.model])
        if compiled.error:
            return {"verdict": f"needed: {compiled.error}", "differing": differing, "tried": number}
        if differing and subject.is_device:
            return {"verdict": "device text differs", "differing": differing, "tried": number}
        if time.process_time() + _children() > until:
            return {"verdict": f"after {limit:.0f} s", "differing": differing, "tried": number}
    return {"verdict": "all tried", "differing": differing, "tried": len(firing)}


def _children() -> float:
    return os.times().children_user + os.times().children_system


def undecided(results: Results) -> list[dict[str, Any]]:
    """Return the trials of parts that change neither the text of a device nor whether a case compiles, but something."""
    return [line for line in results.of("trial") if line["differing"] and line["verdict"].startswith(("all", "after"))]


def times(results: Results, search: Callable[[str], object], limit: float) -> None:
    """Time the x86 cases that differ without a part, until one is slower."""
    done = {(line["part"], line["targets"], line["model"]) for line in results.of("time")}
    for trial in undecided(results):
        until = time.perf_counter() + limit
        for targets, model in trial["differing"] if search(trial["part"]) else ():
            if (trial["part"], targets, model) in done or not targets.startswith("x86") or "sapphirerapids" in targets:
                continue
            ratio, size = _compare(trial["part"], targets.replace("threads=2", "threads=1"), model)
            results.write("time", part=trial["part"], targets=targets, model=model, ratio=ratio, bytes=size)
            print(f"{trial['part']}: {ratio:.3f} of the time, {size:.3f} of the bytes: {targets} {model}", flush=True)
            if ratio >= SLOWER or time.perf_counter() > until:
                break


def _compare(part: str, targets: str, model: str) -> tuple[float, float]:
    """Return the time of a case without a part over the time with it, and the same of the bytes of the packages."""
    if model in recorded.MLPERF:
        module = inlaid.load(recorded.MLPERF_FOLDER / model)
        inputs = {spec.name: example(spec) for spec in inlaid.compile(module, [targets], cache=False).inputs}
    else:
        built, make_feeds = _built(model)
        module, inputs = inlaid.load(built), make_feeds()
    sizes, runs = [], []
    for parts in ((), (part,)):
        with warnings.catch_warnings(), without(parts, Firings()):
            warnings.simplefilter("ignore")
            settings = Settings(precision="bf16") if model.endswith(BF16) else recorded.SETTINGS
            package = build_package(module, [targets], settings=settings, keep=False)
            sizes.append(len(recorded.encode_package(package)))
            runs.append(inlaid.compile(module, [targets], cache=False, precision=settings.precision))
    return round(_ratio([lambda each=each: each.run(inputs) for each in runs]), 4), round(sizes[1] / sizes[0], 4)  # type: ignore[misc]


def _ratio(runs: Sequence[Callable[[], object]]) -> float:
    """Run two functions in turns: the ratio of the least processor times."""
    start = time.process_time()
    for run in runs:
        run()
    repeats = max(1, int(ROUND / max((time.process_time() - start) / 2, 1e-7)))
    least = [float("inf"), float("inf")]
    for number in range(ROUNDS):
        for index in (0, 1) if number % 2 else (1, 0):
            start = time.process_time()
            for _ in range(repeats):
                runs[index]()
            least[index] = min(least[index], time.process_time() - start)
    return least[1] / least[0]


def counts(results: Results, search: Callable[[str], object]) -> None:
    """Count instructions, bytes and accesses of the firmwares that differ without a part."""
    done = {(line["part"], line["targets"], line["model"]) for line in results.of("count")}
    before: dict[tuple[str, str], micro.Figures] = {}
    uncached = mock.patch.object(inlaid, "compile", partial(inlaid.compile, cache=False))  # a cached package has every part
    for trial in undecided(results):
        for targets, model in trial["differing"] if search(trial["part"]) else ():
            cpu = targets.partition("cpu=")[2]
            entry = next((each for each in micro.MODELS.values() if each.file == model), None)
            board = board_for(cpu) if targets.startswith("microcontroller") else None
            if entry is None or board is None or (trial["part"], targets, model) in done:
                continue
            path = recorded.MLPERF_FOLDER / model
            if (targets, model) not in before:
                with uncached:
                    before[targets, model] = micro.measure(path, entry, cpu, board)
            try:
                with uncached, without((trial["part"],), Firings()):
                    after = micro.measure(path, entry, cpu, board)
            except RuntimeError as error:  # a wrong output
                results.write(**{**trial, "verdict": f"needed: {error}"[:200]})
                print(f"{trial['part']}: {error}", flush=True)
                break
            ratios = {
                name: round(value / old, 4) for name, value in vars(after).items() if (old := getattr(before[targets, model], name))
            }
            results.write("count", part=trial["part"], targets=targets, model=model, ratios=ratios)
            print(f"{trial['part']}: {ratios}: {targets} {model}", flush=True)
            if max(ratios.values()) >= GREATER:
                break


def table(results: Results) -> str:
    """Render what is known of each part: lists of those that need no measurement, and a table of the others."""
    used = {part for line in results.of("survey") for part in (*line["used"], *line["fired"])}
    tried = {line["part"]: line for line in results.of("trial")}
    fired = {part for line in results.of("survey") for part in line["fired"]}
    others = [part for part in sorted(tried) if tried[part]["verdict"].startswith(("all", "after"))]
    lists = {
        "Do not fire": sorted(used - fired),
        "Fire, and were not tried": sorted(fired - tried.keys()),
        "A case cannot be compiled without them": [part for part in tried if tried[part]["verdict"].startswith("needed")],
        "Text of opencl or cuda differs without them": [part for part in tried if tried[part]["verdict"].startswith("device")],
    }
    lines = [f"{title}: {', '.join(map('`{}`'.format, sorted(parts)))}.\n" for title, parts in lists.items() if parts]
    lines += ["| part | fires | differ | slowest | most of a count |", "|---|--:|--:|---|--:|"]
    for part in others:
        trial = tried[part]
        ratios = [(line["ratio"], line["model"]) for line in results.of("time") if line["part"] == part]
        greatest = [max(line["ratios"].values()) for line in results.of("count") if line["part"] == part]
        greatest += [line["bytes"] for line in results.of("time") if line["part"] == part]
        slowest = "{:.2f}, {}".format(*max(ratios)) if ratios else ""
        differing = f"{len(trial['differing'])} of {trial['tried']}"
        most = f"{max(greatest):.2f}" if greatest else ""
        lines.append(f"| `{part}` | {trial['firing']} | {differing} | {slowest} | {most} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("survey", "trials", "times", "counts", "table"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results; default: build/second_order.jsonl")
    parser.add_argument("--quick", action="store_true", help="survey a sample")
    parser.add_argument("--case", nargs=2, action="append", metavar=("TARGETS", "MODEL"), help="survey this case; may be repeated")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="survey each N-th case, from the K-th")
    parser.add_argument("--only", default="", metavar="REGEX", help="only the parts whose name this matches")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="for each part; default: 120")
    options = parser.parse_args(arguments)
    results, search = Results(options.results), re.compile(options.only).search
    if options.action == "survey":
        share, shares = map(int, options.share.split("/"))
        subjects = [Subject(*case) for case in options.case] if options.case else cases(options.quick)
        survey(results, subjects[share - 1 :: shares])
    elif options.action == "trials":
        trials(results, search, options.limit)
    elif options.action == "times":
        times(results, search, options.limit)
    elif options.action == "counts":
        counts(results, search)
    else:
        print(table(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
