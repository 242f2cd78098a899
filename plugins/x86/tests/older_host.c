/* Preloaded, makes a process see a processor without AVX-512, AMX and AVX-VNNI, as `make test-avx2` does.
 *
 * CPUID traps: the kernel delivers SIGSEGV for it (arch_prctl ARCH_CPUID, Linux 4.12, on processors and hypervisors that offer
 * "cpuid_fault"), and the handler answers with bits of newer instruction sets cleared. So every library of the process decides as
 * it would on such a processor: ONNX Runtime, numpy, LLVM and Inlaid alike. /proc/cpuinfo is replaced by the file that
 * OLDER_HOST_CPUINFO names. Wide instructions still execute: what runs them without asking is not found this way.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_CPUID_SET 0x1012
/* Bits of CPUID leaf 7 (Intel SDM, volume 2): AVX-512 in all its parts, AMX, and the wide GFNI, VAES and VPCLMULQDQ. */
#define LEAF_7_EBX (1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31)
#define LEAF_7_ECX (1u << 1 | 1u << 6 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 14)
#define LEAF_7_EDX (1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25)

static struct sigaction others; /* what the process itself does about SIGSEGV */

static int trap_cpuid(int trap) { return (int)syscall(SYS_arch_prctl, ARCH_CPUID_SET, !trap); }

static void answer(greg_t *registers) {
    unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], a, b, c, d;
    trap_cpuid(0);
    __cpuid_count(leaf, subleaf, a, b, c, d);
    trap_cpuid(1);
    if (leaf == 7 && subleaf == 0) {
        a = 0; /* no further subleaves */
        b &= ~LEAF_7_EBX;
        c &= ~LEAF_7_ECX;
        d &= ~LEAF_7_EDX;
    } else if (leaf == 7 || (leaf >= 0x1d && leaf <= 0x1e) || leaf == 0x24) {
        a = b = c = d = 0;
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    /* A fault that the kernel raises carries no address; one of memory does, and its instruction may not be readable. */
    if (info->si_code == SI_KERNEL && memcmp((void *)registers[REG_RIP], "\x0f\xa2", 2) == 0) {
        answer(registers);
    } else if (others.sa_flags & SA_SIGINFO) {
        others.sa_sigaction(number, info, context);
    } else if (others.sa_handler != SIG_DFL && others.sa_handler != SIG_IGN) {
        others.sa_handler(number);
    } else {
        real_sigaction(number, &others, NULL); /* the instruction faults again, with nobody to handle it */
    }
}

int sigaction(int number, const struct sigaction *wanted, struct sigaction *previous) {
    if (number != SIGSEGV || real_sigaction == NULL) {
        if (real_sigaction == NULL) real_sigaction = dlsym(RTLD_NEXT, "sigaction");
        return real_sigaction(number, wanted, previous);
    }
    if (previous) *previous = others;
    if (wanted) others = *wanted;
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = SA_RESTART}, previous;
    return sigaction(number, &wanted, &previous) ? SIG_ERR : previous.sa_handler;
}

static const char *seen(const char *path) {
    const char *other = getenv("OLDER_HOST_CPUINFO");
    return other && strcmp(path, "/proc/cpuinfo") == 0 ? other : path;
}

#define OPEN(NAME)                                                      \
    int NAME(const char *path, int flags, ...) {                        \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #NAME);  \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = va_arg(rest, mode_t);                             \
        va_end(rest);                                                   \
        return real(seen(path), flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(NAME)                                                             \
    FILE *NAME(const char *path, const char *mode) {                            \
        FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, #NAME);    \
        return real(seen(path), mode);                                          \
    }
FOPEN(fopen)
FOPEN(fopen64)

__attribute__((constructor)) static void begin(void) {
    struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    if (real_sigaction == NULL) real_sigaction = dlsym(RTLD_NEXT, "sigaction");
    real_sigaction(SIGSEGV, &mine, &others);
    if (trap_cpuid(1)) {
        fputs("older_host: this kernel or processor cannot trap CPUID (no cpuid_fault in /proc/cpuinfo)\n", stderr);
        exit(1);
    }
}
