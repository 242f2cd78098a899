"""Threads for parallel loops: fork-join in native code, without a compiler on the user's machine.

The pool is written in LLVM text and compiled when it is first needed. Workers are Python threads that enter the native worker
loop and never come back; they wait for a job by spinning a little, then by sleeping on a futex. The thread that opens a job works
on it too and waits only for workers that have joined: one that is still asleep is not waited for, so a job is never slower than
the work itself, and a process that forks, and so loses its workers, goes on alone. A pool serves one job at a time; a job that
finds it busy (another executable in another thread, or a nested parallel loop) runs serially.

Every thread has a range of a job's iterations of its own, the same part in every job of that many iterations, and takes chunks of
the others' ranges only when it is through with it: what one job wrote lies in the cache of the core that reads it in the next.
"""

from __future__ import annotations

import ctypes
import functools
import threading

SPINS = 2000
"""How often a worker looks for a job before it sleeps, and how often whoever opened a job looks whether the others are done before
it lets other threads run: about 40 microseconds."""
_LOCK = threading.Lock()
"""Held while a pool is made: threads that ask for it at once get the same."""

RANGE_BYTES = 128
"""Two cache lines: what processors fetch at once."""

_TEXT = f"""\
; generation: counts jobs, workers sleep on it.  active: workers in the job; CLOSED is added when no more may join.
%pool = type {{ i32, i32, i32, i32, ptr, ptr, i64, i32, i32, [{RANGE_BYTES - 48} x i8], [0 x %range] }}
;               0    1    2    3    4    5    6    7    8    9          10
;      generation, sleepers, busy, active, body, closure, chunk, status, threads, -, ranges
%range = type {{ i64, i64, [{RANGE_BYTES - 16} x i8] }}
;      next iteration that nobody has taken, end

declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.smin.i64(i64, i64)

; Take chunks of one's own range, then of the ranges of those who are not through with theirs.
define internal void @work(ptr %pool, i64 %self) {{
entry:
  %p.body = getelementptr %pool, ptr %pool, i64 0, i32 4
  %p.closure = getelementptr %pool, ptr %pool, i64 0, i32 5
  %p.chunk = getelementptr %pool, ptr %pool, i64 0, i32 6
  %p.status = getelementptr %pool, ptr %pool, i64 0, i32 7
  %p.threads = getelementptr %pool, ptr %pool, i64 0, i32 8
  %body = load ptr, ptr %p.body
  %closure = load ptr, ptr %p.closure
  %chunk = load i64, ptr %p.chunk
  %t = load i32, ptr %p.threads
  %threads = zext i32 %t to i64
  br label %look
look:
  %owner = phi i64 [ %self, %entry ], [ %wrapped, %through ]
  %seen = phi i64 [ 0, %entry ], [ %others, %through ]
  %p.next = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %owner, i32 0
  %p.end = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %owner, i32 1
  %extent = load i64, ptr %p.end
  br label %take
take:
  %begin = atomicrmw add ptr %p.next, i64 %chunk monotonic
  %left = icmp slt i64 %begin, %extent
  br i1 %left, label %run, label %through
run:
  %stop = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %stop, i64 %extent)
  %status = call i32 %body(ptr %closure, i64 %begin, i64 %end)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %take, label %failed
failed:
  store atomic i32 %status, ptr %p.status monotonic, align 4
  br label %take
through:
  %others = add i64 %seen, 1
  %following = add i64 %owner, 1
  %last = icmp eq i64 %following, %threads
  %wrapped = select i1 %last, i64 0, i64 %following
  %all = icmp eq i64 %others, %threads
  br i1 %all, label %done, label %look
done:
  ret void
}}

define i32 @inlaid_pool_run(ptr %pool, ptr %body, ptr %closure, i64 %extent) {{
entry:
  %p.busy = getelementptr %pool, ptr %pool, i64 0, i32 2
  %single = icmp slt i64 %extent, 2
  br i1 %single, label %alone, label %lock
lock:
  %seen = cmpxchg ptr %p.busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue {{ i32, i1 }} %seen, 1
  br i1 %got, label %open, label %alone
alone:
  %own = call i32 %body(ptr %closure, i64 0, i64 %extent)
  ret i32 %own
open:
  %p.sleepers = getelementptr %pool, ptr %pool, i64 0, i32 1
  %p.active = getelementptr %pool, ptr %pool, i64 0, i32 3
  %p.body = getelementptr %pool, ptr %pool, i64 0, i32 4
  %p.closure = getelementptr %pool, ptr %pool, i64 0, i32 5
  %p.chunk = getelementptr %pool, ptr %pool, i64 0, i32 6
  %p.status = getelementptr %pool, ptr %pool, i64 0, i32 7
  %p.threads = getelementptr %pool, ptr %pool, i64 0, i32 8
  store ptr %body, ptr %p.body
  store ptr %closure, ptr %p.closure
  %t = load i32, ptr %p.threads
  %threads = zext i32 %t to i64
  %size = udiv i64 %extent, %threads
  %rest = urem i64 %extent, %threads
  %eighth = udiv i64 %size, 8
  %chunk = add i64 %eighth, 1
  store i64 %chunk, ptr %p.chunk
  store atomic i32 0, ptr %p.status monotonic, align 4
  br label %deal
deal:
  %i = phi i64 [ 0, %open ], [ %i.next, %deal ]
  %begin = phi i64 [ 0, %open ], [ %end, %deal ]
  %longer = icmp slt i64 %i, %rest
  %one = zext i1 %longer to i64
  %length = add i64 %size, %one
  %end = add i64 %begin, %length
  %p.next = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %i, i32 0
  %p.end = getelementptr %pool, ptr %pool, i64 0, i32 10, i64 %i, i32 1
  store atomic i64 %begin, ptr %p.next monotonic, align 8
  store i64 %end, ptr %p.end
  %i.next = add i64 %i, 1
  %dealt = icmp eq i64 %i.next, %threads
  br i1 %dealt, label %start, label %deal
start:
  store atomic i32 0, ptr %p.active seq_cst, align 4
  %g = atomicrmw add ptr %pool, i32 1 seq_cst
  %asleep = load atomic i32, ptr %p.sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %share
wake:
  %w = call i64 (i64, ...) @syscall(i64 202, ptr %pool, i64 129, i64 2147483647)
  br label %share
share:
  call void @work(ptr %pool, i64 0)
  %c = atomicrmw or ptr %p.active, i32 1073741824 seq_cst
  br label %wait
wait:
  %waits = phi i32 [ 0, %share ], [ %waited, %spin ], [ 0, %yield ]
  %now = load atomic i32, ptr %p.active acquire, align 4
  %empty = icmp eq i32 %now, 1073741824
  br i1 %empty, label %close, label %patience
patience:
  %long = icmp sgt i32 %waits, {SPINS}
  br i1 %long, label %yield, label %spin
spin:
  call void @llvm.x86.sse2.pause()
  %waited = add i32 %waits, 1
  br label %wait
yield:
  %y = call i64 (i64, ...) @syscall(i64 24)
  br label %wait
close:
  %status = load atomic i32, ptr %p.status monotonic, align 4
  store atomic i32 0, ptr %p.busy release, align 4
  ret i32 %status
}}

define void @inlaid_pool_worker(ptr %pool, i64 %self) {{
entry:
  %p.sleepers = getelementptr %pool, ptr %pool, i64 0, i32 1
  %p.active = getelementptr %pool, ptr %pool, i64 0, i32 3
  br label %listen
listen:
  %last = phi i32 [ 0, %entry ], [ %generation, %joined ], [ %generation, %join ]
  br label %poll
poll:
  %spins = phi i32 [ 0, %listen ], [ %more, %again ], [ 0, %slept ]
  %generation = load atomic i32, ptr %pool acquire, align 4
  %same = icmp eq i32 %generation, %last
  br i1 %same, label %idle, label %join
idle:
  %tired = icmp sgt i32 %spins, {SPINS}
  br i1 %tired, label %sleep, label %again
again:
  call void @llvm.x86.sse2.pause()
  %more = add i32 %spins, 1
  br label %poll
sleep:
  %a = atomicrmw add ptr %p.sleepers, i32 1 seq_cst
  %value = zext i32 %last to i64
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %pool, i64 128, i64 %value, ptr null)
  %b = atomicrmw sub ptr %p.sleepers, i32 1 seq_cst
  br label %slept
slept:
  br label %poll
join:
  %state = load atomic i32, ptr %p.active seq_cst, align 4
  %closed = icmp sge i32 %state, 1073741824
  br i1 %closed, label %listen, label %enter
enter:
  %next = add i32 %state, 1
  %try = cmpxchg ptr %p.active, i32 %state, i32 %next seq_cst monotonic
  %entered = extractvalue {{ i32, i1 }} %try, 1
  br i1 %entered, label %joined, label %join.again
join.again:
  br label %join
joined:
  call void @work(ptr %pool, i64 %self)
  %left = atomicrmw sub ptr %p.active, i32 1 seq_cst
  br label %listen
}}
"""

_CLOSED = 1 << 30


class Pool:
    """`threads` threads, the caller's included. `run` is the address of `inlaid_pool_run`, `state` that of the pool."""

    def __init__(self, threads: int) -> None:
        self._library = _library()
        self.run: int = self._library.address("inlaid_pool_run")
        memory = (ctypes.c_int8 * (RANGE_BYTES * (threads + 2)))()
        self.state = -(-ctypes.addressof(memory) // RANGE_BYTES) * RANGE_BYTES
        self._memory = memory
        header = (ctypes.c_int32 * 12).from_address(self.state)
        header[3], header[11] = _CLOSED, threads
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._library.address("inlaid_pool_worker"))
        for number in range(1, threads):
            threading.Thread(target=worker, args=(self.state, number), daemon=True, name=f"inlaid-x86-{number}").start()


@functools.cache
def _library() -> _Native:
    return _Native()


class _Native:
    """The compiled pool functions."""

    def __init__(self) -> None:
        from inlaid_x86.loader import link
        from inlaid_x86.machine import compile_text

        self._linked = link([compile_text(_TEXT)], "inlaid_pool", ("inlaid_pool_run", "inlaid_pool_worker"))

    def address(self, name: str) -> int:
        """Address of a function."""
        return self._linked.addresses[name]


def pool(threads: int) -> Pool:
    """The pool of that many threads; one per process, alive until it ends."""
    with _LOCK:
        return _made(threads)


@functools.cache
def _made(threads: int) -> Pool:
    return Pool(threads)
