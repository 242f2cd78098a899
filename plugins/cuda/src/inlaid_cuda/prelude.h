// Prelude of all kernel sources, for devices and for the host (INLAID_HOST).
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL
#ifdef INLAID_HOST
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define inlaid_popcount64 __builtin_popcountll
inline int inlaid_clz64(uint64_t a) { return a == 0 ? 64 : __builtin_clzll(a); }
#else
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define inlaid_popcount64 __popcll
#define inlaid_clz64 __clzll
#define INLAID_LAUNCHED(type, name) alignas(1024) extern __shared__ type name[]
#endif
#define _Bool bool
#define restrict __restrict__

// A vector of 2, 4, 8 or 16 lanes: two halves. Operators work on halves down to lanes, so that lanes are registers.
template <class T, int lanes> struct alignas(sizeof(T) * lanes < 16 ? sizeof(T) * lanes : 16) inlaid_vector {
    inlaid_vector<T, lanes / 2> lo, hi;
};
template <class T> struct alignas(2 * sizeof(T)) inlaid_vector<T, 2> {
    T lo, hi;
};
template <int bytes> struct inlaid_integer;
template <> struct inlaid_integer<1> { typedef int8_t type; typedef uint8_t bits; };
template <> struct inlaid_integer<2> { typedef int16_t type; typedef uint16_t bits; };
template <> struct inlaid_integer<4> { typedef int32_t type; typedef uint32_t bits; };
template <> struct inlaid_integer<8> { typedef int64_t type; typedef uint64_t bits; };
#define INLAID_OPERATOR(op) \
    template <class T, int lanes> \
    inline inlaid_vector<T, lanes> operator op(const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b) { \
        typedef decltype(a.lo) half; \
        return {half(a.lo op b.lo), half(a.hi op b.hi)}; \
    }
INLAID_OPERATOR(+)
INLAID_OPERATOR(-)
INLAID_OPERATOR(*)
INLAID_OPERATOR(/)
INLAID_OPERATOR(%)
INLAID_OPERATOR(&)
INLAID_OPERATOR(|)
INLAID_OPERATOR(^)
INLAID_OPERATOR(<<)
INLAID_OPERATOR(>>)
#define INLAID_PREFIX(op) \
    template <class T, int lanes> inline inlaid_vector<T, lanes> operator op(const inlaid_vector<T, lanes> &a) { \
        typedef decltype(a.lo) half; \
        return {half(op a.lo), half(op a.hi)}; \
    }
INLAID_PREFIX(-)
INLAID_PREFIX(~)
#define INLAID_COMPARISON(op, name) \
    template <class T> inline typename inlaid_integer<sizeof(T)>::type name(T a, T b) { return -(a op b); } \
    template <class T, int lanes> \
    inline inlaid_vector<typename inlaid_integer<sizeof(T)>::type, lanes> \
    name(const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b) { return {name(a.lo, b.lo), name(a.hi, b.hi)}; } \
    template <class T, int lanes> \
    inline inlaid_vector<typename inlaid_integer<sizeof(T)>::type, lanes> \
    operator op(const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b) { return name(a, b); }
INLAID_COMPARISON(<, inlaid_lt)
INLAID_COMPARISON(>, inlaid_gt)
INLAID_COMPARISON(<=, inlaid_le)
INLAID_COMPARISON(>=, inlaid_ge)
INLAID_COMPARISON(==, inlaid_eq)
INLAID_COMPARISON(!=, inlaid_ne)
template <class M, class T> inline T inlaid_choose(M mask, T a, T b) { return mask ? a : b; }
template <class M, class T, int lanes>
inline inlaid_vector<T, lanes>
inlaid_choose(const inlaid_vector<M, lanes> &mask, const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b) {
    return {inlaid_choose(mask.lo, a.lo, b.lo), inlaid_choose(mask.hi, a.hi, b.hi)};
}
inline bool inlaid_any(int8_t mask) { return mask != 0; }
inline bool inlaid_all(int8_t mask) { return mask != 0; }
template <int lanes> inline bool inlaid_any(const inlaid_vector<int8_t, lanes> &mask) {
    return inlaid_any(mask.lo) || inlaid_any(mask.hi);
}
template <int lanes> inline bool inlaid_all(const inlaid_vector<int8_t, lanes> &mask) {
    return inlaid_all(mask.lo) && inlaid_all(mask.hi);
}
template <class T, int lanes> inline inlaid_vector<T, lanes> inlaid_splat(T value) {
    if constexpr (lanes == 2) return {value, value};
    else return {inlaid_splat<T, lanes / 2>(value), inlaid_splat<T, lanes / 2>(value)};
}
// Conversions of scalars: a C cast, a bitcast, or a function.
struct inlaid_cast { template <class To, class T> static inline To of(T a) { return To(a); } };
struct inlaid_bits {
    template <class To, class T> static inline To of(T a) {
        union { T from; To to; } both;
        both.from = a;
        return both.to;
    }
};
template <class How, class To, class T, int lanes>
inline inlaid_vector<To, lanes> inlaid_lanes(const inlaid_vector<T, lanes> &a) {
    if constexpr (lanes == 2) return {How::template of<To>(a.lo), How::template of<To>(a.hi)};
    else return {inlaid_lanes<How, To>(a.lo), inlaid_lanes<How, To>(a.hi)};
}
#define INLAID_FUNCTION(name) \
    inline float inlaid_##name(float a) { return name##f(a); } \
    inline double inlaid_##name(double a) { return name(a); } \
    template <class T, int lanes> inline inlaid_vector<T, lanes> inlaid_##name(const inlaid_vector<T, lanes> &a) { \
        return {inlaid_##name(a.lo), inlaid_##name(a.hi)}; \
    }
INLAID_FUNCTION(floor)
INLAID_FUNCTION(ceil)
INLAID_FUNCTION(rint)
INLAID_FUNCTION(trunc)
INLAID_FUNCTION(sqrt)
inline float inlaid_fma(float a, float b, float c) { return fmaf(a, b, c); }
inline double inlaid_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T, int lanes>
inline inlaid_vector<T, lanes>
inlaid_fma(const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b, const inlaid_vector<T, lanes> &c) {
    return {inlaid_fma(a.lo, b.lo, c.lo), inlaid_fma(a.hi, b.hi, c.hi)};
}
inline float inlaid_fmod(float a, float b) { return fmodf(a, b); }
inline double inlaid_fmod(double a, double b) { return fmod(a, b); }
template <class T, int lanes>
inline inlaid_vector<T, lanes> inlaid_fmod(const inlaid_vector<T, lanes> &a, const inlaid_vector<T, lanes> &b) {
    return {inlaid_fmod(a.lo, b.lo), inlaid_fmod(a.hi, b.hi)};
}
template <class T> inline T inlaid_popcount(T a) { return T(inlaid_popcount64(typename inlaid_integer<sizeof(T)>::bits(a))); }
template <class T, int lanes> inline inlaid_vector<T, lanes> inlaid_popcount(const inlaid_vector<T, lanes> &a) {
    return {inlaid_popcount(a.lo), inlaid_popcount(a.hi)};
}
template <class T> inline T inlaid_clz(T a) {
    return T(inlaid_clz64(typename inlaid_integer<sizeof(T)>::bits(a)) - (64 - 8 * int(sizeof(T))));
}
template <class T, int lanes> inline inlaid_vector<T, lanes> inlaid_clz(const inlaid_vector<T, lanes> &a) {
    return {inlaid_clz(a.lo), inlaid_clz(a.hi)};
}
// Loads and stores as wide as the alignment of the address allows.
template <class T, int lanes, int aligned> inline inlaid_vector<T, lanes> inlaid_load(const T *at) {
    if constexpr (aligned >= alignof(inlaid_vector<T, lanes>)) return *(const inlaid_vector<T, lanes> *)at;
    else if constexpr (lanes == 2) return {at[0], at[1]};
    else return {inlaid_load<T, lanes / 2, aligned>(at), inlaid_load<T, lanes / 2, aligned>(at + lanes / 2)};
}
template <int aligned, class T, int lanes> inline void inlaid_store(T *at, const inlaid_vector<T, lanes> &value) {
    if constexpr (aligned >= alignof(inlaid_vector<T, lanes>)) *(inlaid_vector<T, lanes> *)at = value;
    else if constexpr (lanes == 2) at[0] = value.lo, at[1] = value.hi;
    else inlaid_store<aligned>(at, value.lo), inlaid_store<aligned>(at + lanes / 2, value.hi);
}
// Narrow floats, stored as integers of equal width, rounded to nearest even.
struct inlaid_from_bfloat16 {
    template <class To> static inline To of(uint16_t a) { return inlaid_bits::of<float>(uint32_t(a) << 16); }
};
struct inlaid_to_bfloat16 {
    template <class To> static inline To of(float a) {
#if !defined(INLAID_HOST) && __CUDA_ARCH__ >= 800
        uint16_t code;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(a));
        return code;
#else
        const uint32_t bits = inlaid_bits::of<uint32_t>(a);
        return a != a ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
    }
};
struct inlaid_from_float16 {
    template <class To> static inline To of(uint16_t a) {
#ifndef INLAID_HOST
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(a));
        return value;
#else
        // Interpreted as a float, these bits are too small by a power of two, also for denormals.
        const uint32_t magnitude = a & 0x7fff;
        const uint32_t scaled = inlaid_bits::of<uint32_t>(inlaid_bits::of<float>(magnitude << 13) * 0x1p112f);
        const uint32_t bits = magnitude > 0x7c00 ? 0x7fc00000 : magnitude == 0x7c00 ? 0x7f800000 : scaled;
        return inlaid_bits::of<float>(bits | uint32_t(a >> 15) << 31);
#endif
    }
};
struct inlaid_to_float16 {
    template <class To> static inline To of(float a) {
#ifndef INLAID_HOST
        uint16_t code;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(a));
        return code;
#else
        const uint32_t all = inlaid_bits::of<uint32_t>(a), bits = all & 0x7fffffff;
        // Denormals have a fixed spacing: adding a number with this spacing rounds to it.
        const uint32_t small = inlaid_bits::of<uint32_t>(inlaid_bits::of<float>(bits) + 0.5f) - 0x3f000000;
        const uint32_t normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10);
        const uint32_t code = bits < 0x38800000 ? small : normal > 0x7bff ? 0x7c00 : normal;
        return (a != a ? 0x7e00 : code) | all >> 31 << 15;
#endif
    }
};
