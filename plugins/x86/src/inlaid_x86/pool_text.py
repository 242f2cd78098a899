"""LLVM text of the thread pool, and the program that compiles it to the image `pool.elf`.

    python -m inlaid_x86.pool_text

writes `pool.elf`, which is part of the distribution. Run it after every change of the text; a test compares image and text.
"""

from __future__ import annotations

from llvmlite.binding import llvm_version_info

from inlaid_x86.linking import link_image
from inlaid_x86.machine import compile_text
from inlaid_x86_runtime.pool import IMAGE, RANGE_BYTES, SPINS

TEXT = f"""\
; generation: counts jobs, workers sleep on it.  active: workers in the job; CLOSED is added when no more may join.
%pool = type {{ i32, i32, i32, i32, ptr, ptr, i64, i32, i32, [{RANGE_BYTES - 48} x i8], [0 x %range] }}
;               0    1    2    3    4    5    6    7    8    9          10
;      generation, sleepers, busy, active, body, closure, chunk, status, threads, -, ranges
%range = type {{ i64, i64, [{RANGE_BYTES - 16} x i8] }}
;      next iteration to take, end

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.smin.i64(i64, i64)

; A system call with three arguments; the fourth is 0.
define internal i64 @system(i64 %number, ptr %first, i64 %second, i64 %third) {{
  %result = call i64 asm sideeffect "syscall",
    "={{rax}},{{rax}},{{rdi}},{{rsi}},{{rdx}},{{r10}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 %number, ptr %first, i64 %second, i64 %third, i64 0)
  ret i64 %result
}}

; Run chunks of the thread's own range, then steal chunks of ranges that are not finished.
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
  %w = call i64 @system(i64 202, ptr %pool, i64 129, i64 2147483647)
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
  %y = call i64 @system(i64 24, ptr null, i64 0, i64 0)
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
  %r = call i64 @system(i64 202, ptr %pool, i64 128, i64 %value)
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


def build() -> bytes:
    """Compile the image of the pool, for any x86-64 processor."""
    return link_image([compile_text(TEXT)], ("inlaid_pool_run", "inlaid_pool_worker"), name=name())


def name() -> str:
    """Return the image's name, which records the LLVM version that compiled it."""
    return f"inlaid_pool.llvm-{'.'.join(map(str, llvm_version_info))}"


if __name__ == "__main__":
    IMAGE.write_bytes(build())
