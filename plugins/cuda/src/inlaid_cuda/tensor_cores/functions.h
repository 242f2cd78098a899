// Functions of kernels, each with a body for devices and one for the host. A line `//: name` starts a section, which is included in
// sources that use the name. Sections use earlier ones only.

//: inlaid_shared_address
inline uint32_t inlaid_shared_address(const void *at) {
#ifndef INLAID_HOST
    uint32_t address;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(at));
    return address;
#else
    return uint32_t(uint64_t(at));
#endif
}

//: inlaid_multiplied
#ifdef INLAID_HOST
// The product of two fragments, computed by one lane from the registers of all. `FromA` and `FromB` convert elements to numbers.
template <class A, class FromA, class B, class FromB, class Total> struct inlaid_multiplied {
    uint32_t a[4], b[4];
    Total t[8];
    template <class T> static T element(const uint32_t *words, int row, int byte) {
        T value;
        __builtin_memcpy(&value, (const char *)(words + row / 8 + byte / 16 * 2) + byte % 4, sizeof(T));
        return value;
    }
    static void run(inlaid_multiplied *const lanes[32], unsigned) {
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                Total &total = lanes[i % 8 * 4 + j % 8 / 2]->t[j / 8 * 4 + i / 8 * 2 + j % 2];
                for (int k = 0; k < 32 / int(sizeof(A)); k++) {
                    const int byte = k * sizeof(A), lane = byte % 16 / 4;
                    const A a = element<A>(lanes[i % 8 * 4 + lane]->a, i, byte);
                    const B b = element<B>(lanes[j % 8 * 4 + lane]->b, j, byte);
                    total += FromA::template of<Total>(a) * FromB::template of<Total>(b);
                }
            }
    }
};
#endif

//: inlaid_fragment_zero
inline void inlaid_fragment_zero(uint32_t *to) {
    for (int word = 0; word < 8; word++) to[word] = 0;
}

//: inlaid_fragment_store
inline void inlaid_fragment_store(const uint32_t *from, void *to, int pitch) {
    const int lane = threadIdx.x;
    for (int pair = 0; pair < 4; pair++) {
        uint32_t *at = (uint32_t *)((char *)to + (lane / 4 + pair % 2 * 8) * pitch + lane % 4 * 8 + pair / 2 * 32);
        *(inlaid_vector<uint32_t, 2> *)at = {from[2 * pair], from[2 * pair + 1]};
    }
}

//: inlaid_fragment_rows
inline void inlaid_fragment_rows(const void *from, uint32_t *to, int pitch) {
    const int lane = threadIdx.x;
#ifndef INLAID_HOST
    const char *row = (const char *)from + lane % 16 * pitch + lane / 16 * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(inlaid_shared_address(row)) : "memory");
#else
    for (int word = 0; word < 4; word++)
        __builtin_memcpy(to + word, (const char *)from + (lane / 4 + word % 2 * 8) * pitch + lane % 4 * 4 + word / 2 * 16, 4);
#endif
}

//: inlaid_fragment_columns
inline void inlaid_fragment_columns(const void *from, uint32_t *to, int pitch) {
    const int lane = threadIdx.x;
#ifndef INLAID_HOST
    const char *row = (const char *)from + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(inlaid_shared_address(row)) : "memory");
#else
    for (int word = 0; word < 4; word++)
        for (int k = 0; k < 2; k++) {
            const char *row = (const char *)from + (lane % 4 * 2 + k + word / 2 * 8) * pitch;
            __builtin_memcpy((uint16_t *)(to + word) + k, row + (lane / 4 + word % 2 * 8) * 2, 2);
        }
#endif
}

//: inlaid_fragment_rows_tf32
inline void inlaid_fragment_rows_tf32(const void *from, uint32_t *to, int pitch) {
    inlaid_fragment_rows(from, to, pitch);
    for (int word = 0; word < 4; word++) {
#ifndef INLAID_HOST
        asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(to[word]));
#else
        if ((to[word] & 0x7f800000) != 0x7f800000) to[word] = (to[word] + 0x1000) & ~uint32_t(0x1fff);
#endif
    }
}

//: inlaid_copy
template <int bytes> inline void inlaid_copy(const void *from, void *to) {
#ifndef INLAID_HOST
    const uint32_t at = inlaid_shared_address(to);
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(from), "n"(bytes) : "memory");
#else
    emulation::copy(from, to, bytes);
#endif
}

//: inlaid_await_copies
// Commit this thread's group of copies, and wait until at most `pending` groups are incomplete.
template <int pending> inline void inlaid_await_copies() {
#ifndef INLAID_HOST
    asm volatile("cp.async.commit_group; cp.async.wait_group %0;" :: "n"(pending) : "memory");
#else
    emulation::await_copies(pending);
#endif
}

//: inlaid_fence_async_proxy
inline void inlaid_fence_async_proxy() {
#ifndef INLAID_HOST
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//: inlaid_tensor_map
struct alignas(64) inlaid_tensor_map { uint64_t words[16]; };

//: inlaid_tile_barriers
template <int stages> inline void inlaid_tile_barriers(uint64_t *barriers) {
    for (int stage = 0; stage < stages; stage++) {
#ifndef INLAID_HOST
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" :: "r"(inlaid_shared_address(barriers + stage)) : "memory");
#else
        emulation::start_barrier(barriers + stage, 2);
#endif
    }
#ifndef INLAID_HOST
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

//: inlaid_end_tile_barriers
template <int stages> inline void inlaid_end_tile_barriers(uint64_t *barriers) {
    for (int stage = 0; stage < stages; stage++) {
#ifndef INLAID_HOST
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(inlaid_shared_address(barriers + stage)) : "memory");
#else
        barriers[stage] = 0;
#endif
    }
}

//: inlaid_load_box
template <int rank> struct inlaid_coordinates { int32_t at[rank]; };
template <int rank>
inline void inlaid_load_box(const void *map, void *to, uint64_t *barrier, const inlaid_coordinates<rank> &at) {
#ifndef INLAID_HOST
    if constexpr (rank == 1)
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2}], [%3];"
            :: "r"(inlaid_shared_address(to)), "l"(map), "r"(at.at[0]), "r"(inlaid_shared_address(barrier)) : "memory");
    else if constexpr (rank == 2)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3}], [%4];"
            :: "r"(inlaid_shared_address(to)), "l"(map), "r"(at.at[0]), "r"(at.at[1]), "r"(inlaid_shared_address(barrier)) : "memory");
    else if constexpr (rank == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4}], [%5];"
            :: "r"(inlaid_shared_address(to)), "l"(map), "r"(at.at[0]), "r"(at.at[1]), "r"(at.at[2]), "r"(inlaid_shared_address(barrier)) : "memory");
    else if constexpr (rank == 4)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4, %5}], [%6];"
            :: "r"(inlaid_shared_address(to)), "l"(map), "r"(at.at[0]), "r"(at.at[1]), "r"(at.at[2]), "r"(at.at[3]), "r"(inlaid_shared_address(barrier)) : "memory");
    else if constexpr (rank == 5)
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
            :: "r"(inlaid_shared_address(to)), "l"(map), "r"(at.at[0]), "r"(at.at[1]), "r"(at.at[2]), "r"(at.at[3]), "r"(at.at[4]), "r"(inlaid_shared_address(barrier)) : "memory");
#else
    emulation::transfer(map, to, barrier, at.at);
#endif
}

//: inlaid_load_tile
// Announce the bytes of a tile, and load its boxes, which are adjacent along an axis.
template <int rank, int boxes, int axis, int step, int bytes>
inline void inlaid_load_tile(const void *map, void *to, uint64_t *barrier, inlaid_coordinates<rank> at) {
#ifndef INLAID_HOST
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(inlaid_shared_address(barrier)), "r"(boxes * bytes) : "memory");
#else
    emulation::arrive(barrier, boxes * bytes);
#endif
    for (int box = 0; box < boxes; box++) {
        inlaid_load_box<rank>(map, (char *)to + box * bytes, barrier, at);
        at.at[axis] += step;
    }
}

//: inlaid_await_tile
// Wait until the phase with this parity is complete.
inline void inlaid_await_tile(uint64_t *barrier, int parity) {
#ifndef INLAID_HOST
    uint32_t complete;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(complete) : "r"(inlaid_shared_address(barrier)), "r"(parity) : "memory");
    } while (!complete);
#else
    emulation::await_transfers(barrier, parity, __LINE__);
#endif
}

//: inlaid_wgmma_zero
template <int columns> inline void inlaid_wgmma_zero(uint32_t *to) {
    for (int word = 0; word < columns / 2; word++) to[word] = 0;
}

//: inlaid_wgmma_row
// Row and column of a word of the accumulators. A thread holds as many words as half the number of columns.
inline int inlaid_wgmma_row(int word) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + word / 2 % 2 * 8; }
inline int inlaid_wgmma_column(int word) { return word / 4 * 8 + threadIdx.x % 4 * 2 + word % 2; }

//: inlaid_wgmma_store
template <int columns> inline void inlaid_wgmma_store(const uint32_t *from, void *to, int pitch) {
    // The stored accumulators may overwrite operands that other warps of the warpgroup still read.
    __syncthreads();
    for (int word = 0; word < columns / 2; word += 2) {
        char *at = (char *)to + inlaid_wgmma_row(word) * pitch + inlaid_wgmma_column(word) * 4;
        *(inlaid_vector<uint32_t, 2> *)at = {from[word], from[word + 1]};
    }
}

//: inlaid_wgmma_operand
// A matrix descriptor. Between 8 rows of a chunk and the next 8: 128 bytes, swizzled 1024; between chunks: `pitch`.
inline uint64_t inlaid_wgmma_descriptor(uint32_t address, int pitch, bool transposed) {
    const uint64_t leading = transposed ? 128 : pitch, stride = transposed ? pitch : 128;
    return (address & 0x3ffff) >> 4 | leading >> 4 << 16 | stride >> 4 << 32;
}
inline uint64_t inlaid_wgmma_swizzled_descriptor(uint32_t address, int pitch, bool transposed) {
    const uint64_t leading = transposed ? pitch : 16, stride = 1024, swizzle = 1;
    return (address & 0x3ffff) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62;
}
// The descriptor of the operand of instruction `number` of a step.
inline uint64_t inlaid_wgmma_operand(const void *at, int pitch, bool transposed, bool swizzled, int number, int bytes) {
    const uint32_t address = inlaid_shared_address(at);
    const int step = transposed ? 32 / bytes * (swizzled ? 128 : 16) : swizzled ? 32 : 2 * pitch;
    return swizzled ? inlaid_wgmma_swizzled_descriptor(address + number * step, pitch, transposed)
                    : inlaid_wgmma_descriptor(address + number * step, pitch, transposed);
}

//: inlaid_wgmma_emulated
#ifdef INLAID_HOST
struct inlaid_from_tf32 {
    template <class To> static To of(float a) { return inlaid_bits::of<float>(inlaid_bits::of<uint32_t>(a) & ~uint32_t(0x1fff)); }
};
// Load the element that a descriptor addresses. `window`, the operand's address, has the address bits that descriptors lack.
template <class T> inline T inlaid_wgmma_element(uint64_t descriptor, bool transposed, int i, int k, const void *window) {
    const uint32_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
    const uint32_t stride = (descriptor >> 32 & 0x3fff) << 4, swizzle = descriptor >> 62, base = descriptor >> 49 & 7;
    if (swizzle > 1 || base != 0) __builtin_trap();
    const int chunk = swizzle ? 128 : 16, count = chunk / sizeof(T);
    const int along = transposed ? i : k, across = transposed ? k : i; // along the contiguous axis, and along the other
    const bool exchanged = transposed && !swizzle; // the roles of the offsets
    uint32_t at = start + along / count * (exchanged ? stride : leading) + across / 8 * (exchanged ? leading : stride) +
                  across % 8 * chunk + along % count * sizeof(T);
    if (swizzle) at ^= (at >> 7 & 7) << 4;
    T value;
    __builtin_memcpy(&value, (const char *)window + ((at - inlaid_shared_address(window)) & 0x3ffff), sizeof(T));
    return value;
}
template <class A, class FromA, class B, class FromB, class Total, int columns>
inline void inlaid_wgmma_emulated(
    const void *a, uint64_t left, bool transposed_a, const void *b, uint64_t right, bool transposed_b, uint32_t *t
) {
    for (int word = 0; word < columns / 2; word++) {
        Total total;
        __builtin_memcpy(&total, t + word, 4);
        for (int k = 0; k < 32 / int(sizeof(A)); k++) {
            const A x = inlaid_wgmma_element<A>(left, transposed_a, inlaid_wgmma_row(word), k, a);
            const B y = inlaid_wgmma_element<B>(right, transposed_b, inlaid_wgmma_column(word), k, b);
            total += FromA::template of<Total>(x) * FromB::template of<Total>(y);
        }
        __builtin_memcpy(t + word, &total, 4);
    }
}
#endif
