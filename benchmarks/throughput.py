"""What a second thread adds: calls a second of two Python threads that run one executable of one thread each, over those of one.

    python benchmarks/throughput.py [MODEL ...] [--rounds 5] [--seconds 2]

Beside each model stands a control: the same with SHA-256 of a buffer, which holds no lock and shares nothing, and so says what this
machine gives a second thread. Exits with 1 when the median ratio of a model is below 1.8.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Callable

import onnx

import inlaid
from zoo import feeds, path_of

WANTED = 1.8
MODELS = ("lstm", "mobilenet_v2", "squeezenet", "resnet50", "bert_base")
"""Of the zoo: calls of half a millisecond to a tenth of a second."""


def rate(call: Callable[[], object], threads: int, seconds: float) -> float:
    """Calls a second of all threads together. Each counts whole calls from a common start until the time is up."""
    start = threading.Barrier(threads)
    rates: list[float] = []

    def work() -> None:
        call()
        start.wait()
        count, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds:
            call()
            count += 1
        rates.append(count / (now - begin))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def ratio(call: Callable[[], object], rounds: int, seconds: float) -> tuple[float, float, float]:
    """Medians: calls a second of one thread, of two, and the ratio of the two in one round, which take turns."""
    pairs = [(rate(call, 1, seconds), rate(call, 2, seconds)) for _ in range(rounds)]
    one, two = (statistics.median(side) for side in zip(*pairs, strict=True))
    return one, two, statistics.median(b / a for a, b in pairs)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"of the zoo; default: {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--tiny", action="store_true", help="the small variants of the models, for calls of some 10 microseconds")
    options = parser.parse_args()
    buffer = bytes(1 << 20)
    *_, control = ratio(lambda: hashlib.sha256(buffer).digest(), options.rounds, options.seconds)
    print(f"{'control (SHA-256)':<20} ratio {control:.2f}")
    worst = control
    for name in options.models:
        path = path_of(name, tiny=options.tiny)
        executable = inlaid.compile(path, targets=["x86:threads=1"])
        inputs = feeds(onnx.load(path))
        one, two, found = ratio(lambda run=executable.run, given=inputs: run(given), options.rounds, options.seconds)  # type: ignore[misc]
        print(f"{name:<20} ratio {found:.2f}   {one:10.1f} calls/s by one thread, {two:10.1f} by two", flush=True)
        worst = min(worst, found)
    return int(worst < WANTED)


if __name__ == "__main__":
    sys.exit(main())
