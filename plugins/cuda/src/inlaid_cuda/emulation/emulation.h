// Emulates CUDA kernels on the host: defines the built-ins of nvcc and the device in C++17, without headers.
//
// Each thread of a block is a fiber with its own stack, created when the thread first runs. A thread runs until it returns or waits
// at a barrier or a warp collective. The stack of a returned thread is reused, so a kernel without barriers uses one stack.
// Blocks run sequentially on the calling OS thread, so that plain loads and stores are atomic.
//
// Warp intrinsics (mma.sync and the like) are emulated by one primitive, `warp_gather`:
//
//     struct Operands { float a[4], b[2], c[4]; };                                  // operands and result of one lane
//     static void multiply(Operands *const lanes[32], unsigned members);            // reads all lanes and writes their results
//     ...
//     Operands own = {...};                                                         // in the device function, in each lane
//     warp_gather(0xffffffffu, own, multiply);                                      // returns once `multiply` has run
//
// All live lanes of the mask must reach the same `warp_gather`. Then `multiply` runs once, with the address of each lane's operands
// (null for lanes outside `members`, the live lanes of the mask).

#define INLAID_HOST 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run sequentially, so shared memory is static. Each kernel has a section for it, poisoned before each block.
#define __shared__ static __attribute__((section(INLAID_SHARED), aligned(16)))
// An array in dynamic shared memory. All such arrays begin at the same address.
#define INLAID_LAUNCHED(type, name) type *const name = (type *)emulation::request->shared

#define __syncthreads() emulation::wait(emulation::State::barrier, __LINE__)
#define __syncwarp(...) emulation::sync_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) emulation::shuffle(emulation::lane_index, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulation::shuffle(emulation::lane_up, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulation::shuffle(emulation::lane_down, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulation::shuffle(emulation::lane_xor, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emulation::ballot(__LINE__, mask, predicate)
#define __any_sync(mask, predicate) (emulation::ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (emulation::ballot(__LINE__, mask, !(predicate)) == 0)
#define warp_gather(mask, own, compute) emulation::gather(__LINE__, mask, own, compute)

extern "C" {
float fabsf(float), floorf(float), ceilf(float), rintf(float), truncf(float), sqrtf(float), fmodf(float, float);
float fmaf(float, float, float);
double fabs(double), floor(double), ceil(double), rint(double), trunc(double), sqrt(double), fmod(double, double);
double fma(double, double, double);
int snprintf(char *, unsigned long, const char *, ...);
// Calls `run` on the stack with top `stack`, and saves the caller in `*from`. Returns when the thread waits or `run` returns.
__attribute__((visibility("hidden"))) void inlaid_start(void **from, void *stack, void (*run)());
// Saves the caller in `*from` and resumes the context saved in `to`.
__attribute__((visibility("hidden"))) void inlaid_switch(void **from, void *to);
}

// A saved context is the callee-saved registers, on the stack, and the stack pointer. A thread that returns resumes the
// scheduler, saved in `*from`.
#if defined(__x86_64__)
asm(R"(
.text
.hidden inlaid_start
.type inlaid_start, @function
inlaid_start:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    movq %rdi, %rbx
    call *%rdx
    movq (%rbx), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size inlaid_start, .-inlaid_start
.hidden inlaid_switch
.type inlaid_switch, @function
inlaid_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size inlaid_switch, .-inlaid_switch
)");
#elif defined(__aarch64__)
asm(R"(
.macro inlaid_save
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
.endm
.macro inlaid_restore
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.endm
.text
.hidden inlaid_start
.type inlaid_start, %function
inlaid_start:
    inlaid_save
    mov sp, x1
    mov x19, x0
    blr x2
    ldr x9, [x19]
    mov sp, x9
    inlaid_restore
.size inlaid_start, .-inlaid_start
.hidden inlaid_switch
.type inlaid_switch, %function
inlaid_switch:
    inlaid_save
    mov sp, x1
    inlaid_restore
.size inlaid_switch, .-inlaid_switch
)");
#else
#error "the emulation of CUDA kernels needs an x86-64 or aarch64 processor"
#endif

namespace emulation {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;

struct Dim3 {
    unsigned x, y, z;
};

// A launch request of the driver; `build.Launch` mirrors it.
struct Launch {
    Dim3 grid, block;
    unsigned order;        // of blocks, and of threads within a phase: 0 forward, 1 reversed, 2 random
    unsigned shared_bytes; // of dynamic shared memory
    unsigned long seed;
    unsigned char *shared; // dynamic shared memory
    unsigned char *stacks; // of kMostThreads threads
    unsigned long stack_bytes;
    char message[256]; // error message of a failed launch
};

// An exported kernel; `build.Kernel` mirrors it. `first` to `last` is its static shared memory.
struct Kernel {
    int (*launch)(Launch *request, void **arguments); // returns 1 on failure
    char *first, *last;
    int arguments, threads;
};

enum class State : unsigned char { fresh, ready, barrier, warp, transfer, exited };

struct Thread {
    Dim3 index;
    State state;
    unsigned stack;      // index of its stack, if it has one
    void *stack_pointer; // of a suspended thread
    unsigned line;       // source line of its barrier or collective
    unsigned mask;       // participating lanes; this and the rest are of warp collectives
    void *operands;
    void (*compute)(void *const *lanes, unsigned members, void *function);
    void *function;
};

static Thread threads[kMostThreads];
static Thread *current;
static void *scheduler;
static Launch *request;
static void (*body)(void *);
static void *argument;

} // namespace emulation

static emulation::Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

// --- threads ---------------------------------------------------------------------------------------------------------------

__attribute__((noinline, unused)) static void wait(State state, unsigned line) {
    current->state = state;
    current->line = line;
    inlaid_switch(&current->stack_pointer, scheduler);
}

// The first function on a thread's stack.
static void enter() {
    body(argument);
    current->state = State::exited;
}

// --- warp collectives ------------------------------------------------------------------------------------------------------

template <class T> struct Same {
    using type = T;
};

template <class T>
inline void gather(unsigned line, unsigned mask, T &own, void (*compute)(typename Same<T>::type *const *lanes, unsigned members)) {
    current->mask = mask;
    current->operands = &own;
    current->function = (void *)compute;
    current->compute = [](void *const *lanes, unsigned members, void *function) {
        ((void (*)(T *const *, unsigned))function)((T *const *)lanes, members);
    };
    wait(State::warp, line);
}

inline void sync_warp(unsigned line, unsigned mask = ~0u) {
    char nothing = 0;
    gather(line, mask, nothing, [](char *const *, unsigned) {});
}

inline unsigned ballot(unsigned line, unsigned mask, bool predicate) {
    struct Vote {
        bool predicate;
        unsigned votes;
    } own = {predicate, 0};
    gather(line, mask, own, [](Vote *const *lanes, unsigned members) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < kWarp; lane++)
            if (members >> lane & 1) votes |= unsigned(lanes[lane]->predicate) << lane;
        for (unsigned lane = 0; lane < kWarp; lane++)
            if (members >> lane & 1) lanes[lane]->votes = votes;
    });
    return own.votes;
}

// Source lanes of shuffles within segments of `width` lanes, a power of two.
static inline unsigned lane_index(unsigned lane, unsigned number, unsigned width) {
    return (lane & ~(width - 1)) | (number & (width - 1));
}
static inline unsigned lane_up(unsigned lane, unsigned by, unsigned width) { return (lane & (width - 1)) < by ? lane : lane - by; }
static inline unsigned lane_down(unsigned lane, unsigned by, unsigned width) {
    return (lane & (width - 1)) + by < width ? lane + by : lane;
}
static inline unsigned lane_xor(unsigned lane, unsigned mask, unsigned width) {
    unsigned found = lane ^ mask;
    return found > (lane | (width - 1)) ? lane : found;
}

// A lane outside the mask has no value: reading it returns poison, bytes of 255.
template <class T>
inline T shuffle(unsigned (*source)(unsigned, unsigned, unsigned), unsigned line, unsigned mask, T value, unsigned by, unsigned width = kWarp) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take values of 4 or 8 bytes");
    struct Operand {
        T value, found;
        unsigned source;
    } own = {value, value, source((current - threads) % kWarp, by, width)};
    gather(line, mask, own, [](Operand *const *lanes, unsigned members) {
        for (unsigned lane = 0; lane < kWarp; lane++) {
            if (!(members >> lane & 1)) continue;
            unsigned from = lanes[lane]->source;
            if (members >> from & 1)
                lanes[lane]->found = lanes[from]->value;
            else
                __builtin_memset(&lanes[lane]->found, 0xff, sizeof(T));
        }
    });
    return own.found;
}

// Completes the collectives of a warp that all of their lanes have reached. Returns whether there was one.
static bool complete(unsigned first, unsigned count) {
    unsigned live = 0, waiting = 0;
    for (unsigned lane = 0; lane < kWarp && first + lane < count; lane++) {
        live |= unsigned(threads[first + lane].state != State::exited) << lane;
        waiting |= unsigned(threads[first + lane].state == State::warp) << lane;
    }
    bool found = false;
    while (waiting) {
        unsigned leader = __builtin_ctz(waiting), members = threads[first + leader].mask & live;
        void *operands[kWarp] = {};
        bool all = members >> leader & 1;
        for (unsigned lane = 0; lane < kWarp; lane++) {
            if (!(members >> lane & 1)) continue;
            Thread &one = threads[first + lane], &other = threads[first + leader];
            all &= one.state == State::warp && one.mask == other.mask && one.line == other.line;
            operands[lane] = one.operands;
        }
        if (all) {
            threads[first + leader].compute(operands, members, threads[first + leader].function);
            for (unsigned lane = 0; lane < kWarp; lane++)
                if (members >> lane & 1) threads[first + lane].state = State::ready;
            found = true;
        }
        waiting &= all ? ~members : ~(1u << leader);
    }
    return found;
}

// --- asynchronous copies -----------------------------------------------------------------------------------------------------
//
// A copy is performed when a thread waits for it. Until then its target is poisoned, so that a missing wait gives wrong results.

constexpr unsigned kMostCopies = 512;  // pending ones of a thread
constexpr unsigned kMostTransfers = 64; // pending ones of a block

struct Copy {
    const void *from;
    void *to;
    unsigned bytes, group;
};

static Copy copies[kMostThreads][kMostCopies];
static unsigned pending[kMostThreads], groups[kMostThreads]; // copies of a thread, and groups that it has ended

static const char *failure; // of the kernel: set by a thread, which then waits for the end of the block

__attribute__((noinline, unused)) static void fail(const char *text) {
    failure = text;
    for (;;) wait(State::transfer, 0);
}

inline void copy(const void *from, void *to, unsigned bytes) {
    unsigned thread = current - threads;
    if (pending[thread] == kMostCopies) fail("too many pending copies");
    copies[thread][pending[thread]++] = {from, to, bytes, groups[thread]};
    __builtin_memset(to, 0xff, bytes);
}

// Commits the thread's group of copies, and performs those of all but the last `left` groups.
inline void await_copies(unsigned left) {
    unsigned thread = current - threads, kept = 0;
    groups[thread]++;
    for (unsigned i = 0; i < pending[thread]; i++) {
        const Copy &one = copies[thread][i];
        if (one.group + left < groups[thread])
            __builtin_memcpy(one.to, one.from, one.bytes);
        else
            copies[thread][kept++] = one;
    }
    pending[thread] = kept;
}

// A tensor map; `build._TensorMap` mirrors it. Dimensions from the innermost outwards.
struct TensorMap {
    unsigned long address;
    unsigned rank, element_bytes, swizzle; // swizzle as CUtensorMapSwizzle: 0 none, 3 128 bytes
    unsigned shape[5], box[5];
    unsigned long strides[5]; // in bytes
};

// An mbarrier in shared memory: pending arrivals, and bytes that are announced but have not arrived.
struct TransferBarrier {
    unsigned char phase, count, arrivals, valid;
    int bytes;
};

struct Transfer {
    TransferBarrier *barrier;
    const TensorMap *map;
    unsigned char *to;
    int at[5];
};

static Transfer transfers[kMostTransfers];
static unsigned transferring, changes; // pending transfers; changes of barriers so far

inline void advance(TransferBarrier *barrier) {
    changes++;
    if (barrier->arrivals || barrier->bytes) return;
    barrier->phase ^= 1;
    barrier->arrivals = barrier->count;
}

inline void start_barrier(void *barrier, unsigned count) {
    *(TransferBarrier *)barrier = {0, (unsigned char)count, (unsigned char)count, 0x5a, 0};
    changes++;
}

// Fails unless a barrier was initialized; poisoned memory was not.
inline TransferBarrier *valid(void *barrier) {
    if (((TransferBarrier *)barrier)->valid != 0x5a) fail("a transfer barrier is not initialized");
    return (TransferBarrier *)barrier;
}

inline void arrive(void *barrier, int bytes) {
    TransferBarrier *to = valid(barrier);
    if (!to->arrivals) fail("a transfer barrier gets more arrivals than it expects");
    to->arrivals--;
    to->bytes += bytes;
    advance(to);
}

// Calls `run(element of the box, whether it is in bounds, its address)` for each element of a box, innermost first.
template <class Run> inline void each_element(const Transfer &transfer, Run run) {
    const TensorMap &map = *transfer.map;
    unsigned long count = 1;
    for (unsigned axis = 0; axis < map.rank; axis++) count *= map.box[axis];
    for (unsigned long number = 0; number < count; number++) {
        unsigned long rest = number, offset = 0;
        bool inside = true;
        for (unsigned axis = 0; axis < map.rank; axis++) {
            long at = transfer.at[axis] + long(rest % map.box[axis]);
            rest /= map.box[axis];
            inside &= at >= 0 && at < long(map.shape[axis]);
            offset += at * map.strides[axis];
        }
        // The index of a 16-byte chunk within 128 bytes is XORed with the index of the 128 bytes, modulo 8.
        unsigned long to = (unsigned long)transfer.to + number * map.element_bytes;
        if (map.swizzle == 3) to ^= (to >> 7 & 7) << 4;
        run((void *)to, inside, (const void *)(map.address + offset), map.element_bytes);
    }
}

inline void transfer(const void *map, void *to, void *barrier, const int *at) {
    if (transferring == kMostTransfers || (unsigned long)to % 1024) fail("expected few transfers, to multiples of 1024 bytes");
    Transfer &made = transfers[transferring++] = {valid(barrier), (const TensorMap *)map, (unsigned char *)to, {}};
    if (made.map->swizzle != 0 && made.map->swizzle != 3) fail("unknown swizzle mode of a tensor map");
    for (unsigned axis = 0; axis < made.map->rank; axis++) made.at[axis] = at[axis];
    each_element(made, [](void *to, bool, const void *, unsigned bytes) { __builtin_memset(to, 0xff, bytes); });
}

// Waits until the phase with this parity is complete, and performs the pending transfers of the barrier.
inline void await_transfers(void *barrier, unsigned parity, unsigned line) {
    for (;;) {
        TransferBarrier *to = valid(barrier);
        unsigned kept = 0;
        for (unsigned i = 0; i < transferring; i++) {
            Transfer one = transfers[i];
            transfers[kept++] = one;
            if (one.barrier != to) continue;
            kept--;
            each_element(one, [to](void *at, bool inside, const void *from, unsigned bytes) {
                if (inside)
                    __builtin_memcpy(at, from, bytes);
                else
                    __builtin_memset(at, 0, bytes);
                to->bytes -= bytes;
            });
            advance(to);
        }
        transferring = kept;
        if (to->phase != parity) return;
        wait(State::transfer, line);
    }
}

// --- blocks ----------------------------------------------------------------------------------------------------------------

// A permutation of 0 to count - 1: starts at `at`, in steps of `step` modulo `count`.
struct Order {
    unsigned long count, step, at;

    Order(unsigned long count, unsigned kind, unsigned long &seed) : count(count), step(1), at(0) {
        if (kind == 1) step = at = count - 1;
        if (kind != 2 || count < 2) return;
        do step = random(seed) % count;
        while (divisor(step, count) != 1);
        at = random(seed) % count;
    }
    unsigned long next() {
        unsigned long found = at;
        at += step;
        if (at >= count) at -= count;
        return found;
    }

  private:
    static unsigned long random(unsigned long &seed) { // splitmix64
        unsigned long z = seed += 0x9e3779b97f4a7c15ul;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
        z = (z ^ z >> 27) * 0x94d049bb133111ebul;
        return z ^ z >> 31;
    }
    static unsigned long divisor(unsigned long a, unsigned long b) {
        while (b) {
            unsigned long rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    }
};

static const char *place(const Thread &thread) {
    return thread.state == State::barrier ? "barrier" : thread.state == State::transfer ? "transfer barrier" : "warp collective";
}

// Reports divergence: two threads of a block that wait at different places.
static int diverged(unsigned count) {
    const Thread *first = nullptr, *other = nullptr;
    for (unsigned i = 0; i < count; i++) {
        const Thread &thread = threads[i];
        if (thread.state == State::exited) continue;
        if (!first) first = &thread;
        bool alike = thread.state == first->state && thread.line == first->line && (thread.state == State::barrier || thread.mask == first->mask);
        if (!alike && !other) other = &thread;
    }
    if (!other) other = first; // a lane outside its own mask
    snprintf(request->message, sizeof request->message,
             "threads of block (%u, %u, %u) diverge: thread (%u, %u, %u) waits at the %s of line %u, thread (%u, %u, %u) at the %s of line %u",
             blockIdx.x, blockIdx.y, blockIdx.z, first->index.x, first->index.y, first->index.z, place(*first), first->line,
             other->index.x, other->index.y, other->index.z, place(*other), other->line);
    return 1;
}

static int run_block(unsigned count, unsigned long &seed) {
    static unsigned spare[kMostThreads]; // stacks whose threads have returned
    unsigned spares = 0, stacks = 0;
    for (unsigned i = 0; i < count; i++) threads[i].state = State::fresh, pending[i] = groups[i] = 0;
    transferring = 0;
    for (unsigned live = count;;) {
        Order order(count, request->order, seed);
        const unsigned before = changes;
        for (unsigned i = 0; i < count; i++) {
            Thread &thread = threads[order.next()];
            if (thread.state > State::ready) continue;
            current = &thread;
            threadIdx = thread.index;
            if (thread.state == State::ready)
                inlaid_switch(&scheduler, thread.stack_pointer);
            else {
                thread.stack = spares ? spare[--spares] : stacks++;
                // Stagger the tops of stacks over the sets of the cache.
                unsigned char *end = request->stacks + (thread.stack + 1) * request->stack_bytes;
                inlaid_start(&scheduler, end - thread.stack % 32 * 128, enter);
            }
            if (thread.state != State::exited) continue;
            spare[spares++] = thread.stack;
            live--;
        }
        if (!live && transferring) failure = "it ends with pending transfers";
        if (failure) {
            snprintf(request->message, sizeof request->message, "block (%u, %u, %u): %s", blockIdx.x, blockIdx.y, blockIdx.z, failure);
            failure = nullptr;
            return 1;
        }
        if (!live) return 0;
        bool found = false, met = true;
        for (unsigned i = 0; i < count && changes != before; i++)
            if (threads[i].state == State::transfer) threads[i].state = State::ready, found = true;
        for (unsigned first = 0; first < count; first += kWarp) found |= complete(first, count);
        if (found) continue;
        const Thread *leader = nullptr;
        for (unsigned i = 0; i < count; i++) {
            if (threads[i].state == State::exited) continue;
            if (!leader) leader = &threads[i];
            met &= threads[i].state == State::barrier && threads[i].line == leader->line;
        }
        if (!met) return diverged(count);
        for (unsigned i = 0; i < count; i++)
            if (threads[i].state == State::barrier) threads[i].state = State::ready;
    }
}

// Runs a grid; returns 1 if threads diverge. `first` to `last` is the static shared memory of the kernel.
static int run_grid(Launch *launch, void (*function)(void *), void *argument_of, char *first, char *last) {
    request = launch;
    body = function;
    argument = argument_of;
    blockDim = launch->block;
    gridDim = launch->grid;
    unsigned count = blockDim.x * blockDim.y * blockDim.z;
    for (unsigned i = 0; i < count; i++)
        threads[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    unsigned long blocks = (unsigned long)gridDim.x * gridDim.y * gridDim.z, seed = launch->seed;
    Order order(blocks, launch->order, seed);
    for (unsigned long i = 0; i < blocks; i++) {
        unsigned long block = order.next();
        blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y), unsigned(block / gridDim.x / gridDim.y)};
        __builtin_memset(first, 0xff, last - first);
        __builtin_memset(launch->shared, 0xff, launch->shared_bytes);
        if (run_block(count, seed)) return 1;
    }
    return 0;
}

// --- kernels as functions of an array of addresses of arguments ---------------------------------------------------------------

template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> {
    using type = Numbers<I...>;
};

template <class... A> struct Call {
    void (*kernel)(A...);
    void **arguments;

    template <int... I> void run(Numbers<I...>) const { kernel(*(A *)arguments[I]...); }
    static void start(void *self) { ((const Call *)self)->run(typename Count<sizeof...(A)>::type()); }
};

template <class... A> int launch(Launch *launch, void (*kernel)(A...), void **arguments, char *first, char *last) {
    Call<A...> call = {kernel, arguments};
    return run_grid(launch, Call<A...>::start, &call, first, last);
}

template <class... A> constexpr int arguments_of(void (*)(A...)) { return sizeof...(A); }

} // namespace emulation

template <class T, class U> inline T inlaid_exchange(T *at, U value) {
    T old = *at;
    *at = value;
    return old;
}
template <class T, class U> inline T atomicAdd(T *at, U value) { return inlaid_exchange(at, T(*at + value)); }
template <class T, class U> inline T atomicMin(T *at, U value) { return inlaid_exchange(at, *at < T(value) ? *at : T(value)); }
template <class T, class U> inline T atomicMax(T *at, U value) { return inlaid_exchange(at, *at > T(value) ? *at : T(value)); }
template <class T, class U> inline T atomicExch(T *at, U value) { return inlaid_exchange(at, T(value)); }
template <class T, class U, class V> inline T atomicCAS(T *at, U expected, V value) {
    return inlaid_exchange(at, *at == T(expected) ? T(value) : *at);
}

// Exports kernel NAME, of at most THREADS threads per block, as variable inlaid_kernel_NAME.
#define INLAID_EXPORT(NAME, THREADS)                                                                                             \
    extern "C" __attribute__((weak, visibility("hidden"))) char __start_shared_##NAME[], __stop_shared_##NAME[];                 \
    static int launch_##NAME(emulation::Launch *request, void **arguments) {                                                     \
        return emulation::launch(request, NAME, arguments, __start_shared_##NAME, __stop_shared_##NAME);                         \
    }                                                                                                                            \
    extern "C" const emulation::Kernel inlaid_kernel_##NAME;                                                                     \
    const emulation::Kernel inlaid_kernel_##NAME = {launch_##NAME, __start_shared_##NAME, __stop_shared_##NAME,                  \
                                                    emulation::arguments_of(NAME), THREADS};
