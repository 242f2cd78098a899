"""How long the x86 plugin's threads take to start on a job and to come back: prints microseconds.

    python benchmarks/fork_join.py --threads 1,2

The job is a native parallel loop that does nothing. "busy": jobs follow at once, so that workers are still looking; "asleep": a
pause before each job lets them go to sleep. One thread shows the cost of the call itself.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time

from inlaid_runtime.execution.mapped import map_image
from inlaid_x86.linking import link_image
from inlaid_x86.machine import compile_text
from inlaid_x86_runtime.options import MACHINE
from inlaid_x86_runtime.pool import pool

BODY = "define i32 @nothing(ptr %closure, i64 %begin, i64 %end) {\n  ret i32 0\n}\n"
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
PAUSE = 0.002


def measure(threads: int, jobs: int, pause: float) -> list[float]:
    """Microseconds of each of many jobs of one iteration per thread."""
    code = map_image(link_image([compile_text(BODY)], ("nothing",)), MACHINE, "nothing")
    workers, body = pool(threads), code.addresses["nothing"]
    run = RUN(workers.run)
    found = []
    for _ in range(jobs):
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        run(workers.state, body, None, max(threads, 2))
        found.append((time.perf_counter() - start) * 1e6)
    return sorted(found)


def main() -> None:
    """Print a line per number of threads and kind of job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}", help="numbers of threads, separated by commas")
    parser.add_argument("--jobs", type=int, default=2000)
    options = parser.parse_args()
    for threads in map(int, options.threads.split(",")):
        for kind, pause in (("busy", 0.0), ("asleep", PAUSE)):
            times = measure(threads, options.jobs if not pause else max(options.jobs // 10, 1), pause)
            median, tail = statistics.median(times), times[int(len(times) * 0.95)]
            print(f"{threads} threads, {kind:6}: median {median:8.1f} us, 95 % under {tail:8.1f} us")


if __name__ == "__main__":
    main()
