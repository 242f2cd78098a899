/* Makes a process see a processor without AVX-512, AMX and AVX-VNNI, as `make test-avx2` does; loaded twice, as LD_AUDIT and as
 * LD_PRELOAD (rtld-audit(7)).
 *
 * CPUID cannot be made to trap on every processor, so it is replaced: as the dynamic linker maps a file, each CPUID in it becomes
 * an undefined instruction of the same length, before any code of the file runs. SIGILL is answered with the bits of newer
 * instruction sets cleared. So every library of the process decides as it would on such a processor: ONNX Runtime, numpy, LLVM and
 * Inlaid alike. Where the instructions are, objdump says; the answers are kept in the folder that OLDER_HOST names, beside
 * `cpuinfo`, which is what /proc/cpuinfo shows. Not reached: the dynamic linker itself, and programs without one. Wide instructions
 * still execute: what runs them without asking is not found this way.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define OPCODE "\x0f\xa2"    /* CPUID */
#define UNDEFINED "\x0f\x04" /* no processor of 64 bits has it, and no compiler writes it to trap */
/* Bits of CPUID leaf 7 (Intel SDM, volume 2): AVX-512 in all its parts, AMX, and the wide GFNI, VAES and VPCLMULQDQ. */
#define LEAF_7_EBX (1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31)
#define LEAF_7_ECX (1u << 1 | 1u << 6 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 14)
#define LEAF_7_EDX (1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25)

static struct sigaction others; /* what the process itself does about SIGILL */

static void answer(greg_t *registers) {
    unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, subleaf, a, b, c, d);
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
    if (memcmp((void *)registers[REG_RIP], UNDEFINED, 2) == 0) {
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
    if (number != SIGILL || real_sigaction == NULL) {
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

static char *kept(char *path, const char *name) {
    const char *folder = getenv("OLDER_HOST");
    snprintf(path, PATH_MAX, "%s/%s", folder ? folder : ".", name);
    return path;
}

static const char *seen(const char *path, char *other) {
    return strcmp(path, "/proc/cpuinfo") == 0 ? kept(other, "cpuinfo") : path;
}

#define OPEN(NAME)                                                      \
    int NAME(const char *path, int flags, ...) {                        \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #NAME);  \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = va_arg(rest, mode_t);                             \
        va_end(rest);                                                   \
        char other[PATH_MAX];                                           \
        return real(seen(path, other), flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(NAME)                                                             \
    FILE *NAME(const char *path, const char *mode) {                            \
        FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, #NAME);    \
        char other[PATH_MAX];                                                   \
        return real(seen(path, other), mode);                                        \
    }
FOPEN(fopen)
FOPEN(fopen64)

__attribute__((constructor)) static void begin(void) {
    struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    if (real_sigaction == NULL) real_sigaction = dlsym(RTLD_NEXT, "sigaction");
    real_sigaction(SIGILL, &mine, &others);
}

/* Writes the addresses of CPUID in the file into `list`, by a program that sees none of this. */
static void disassemble(char *file, char *list) {
    char *command = "objdump -d --no-show-raw-insn \"$0\" | sed -nE 's/^ *([0-9a-f]+):.*\\bcpuid\\b.*/\\1/p' > \"$1.$$\" && mv \"$1.$$\" \"$1\"";
    pid_t child = fork();
    if (child == 0) {
        char *words[] = {"sh", "-c", command, file, list, NULL}, *environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};
        execve("/bin/sh", words, environment);
        _exit(127);
    }
    int status = 1;
    if (child > 0) waitpid(child, &status, 0);
    if (status) {
        fprintf(stderr, "older_host: objdump (Debian package binutils) did not read %s\n", file);
        _exit(1);
    }
}

static void replace(char *instruction) {
    long page = sysconf(_SC_PAGESIZE);
    char *begin = (char *)((unsigned long)instruction & -page), *end = instruction + 2;
    if (memcmp(instruction, OPCODE, 2)) return;
    mprotect(begin, end - begin, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(instruction, UNDEFINED, 2);
    mprotect(begin, end - begin, PROT_READ | PROT_EXEC);
}

/* Whether a file holds the opcode, and then a name by which its list is found again wherever it is copied to: its size and a
 * checksum (FNV-1a) of both its ends, which hold the build identifier and the symbols. */
static int holds_opcode(const char *file, char *name, size_t room) {
    int descriptor = open(file, O_RDONLY), found = 0;
    struct stat facts;
    if (descriptor < 0) return 0;
    if (fstat(descriptor, &facts) == 0 && facts.st_size > 0) {
        unsigned char *bytes = mmap(NULL, facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        found = bytes != MAP_FAILED && memmem(bytes, facts.st_size, OPCODE, 2);
        unsigned long sum = 0xcbf29ce484222325ul;
        for (off_t at = 0; found && at < facts.st_size; at = at == 65535 && facts.st_size > 131072 ? facts.st_size - 65536 : at + 1)
            sum = (sum ^ bytes[at]) * 0x100000001b3ul;
        if (bytes != MAP_FAILED) munmap(bytes, facts.st_size);
        snprintf(name, room, "%lx-%lx", (long)facts.st_size, sum);
    }
    close(descriptor);
    return found;
}

unsigned int la_version(unsigned int version) { return version; }

/* What the dynamic linker calls for each file that it has mapped. */
unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)space, (void)cookie;
    char file[PATH_MAX], list[PATH_MAX], name[64];
    if (realpath(*map->l_name ? map->l_name : "/proc/self/exe", file) == NULL) return 0; /* the kernel's own, linux-vdso */
    if (strstr(file, "/older_host.so") || strstr(file, "/ld-linux") || !holds_opcode(file, name, sizeof name)) return 0;
    if (access(kept(list, name), R_OK)) disassemble(file, list);
    FILE *addresses = fopen(list, "r");
    unsigned long address;
    while (addresses && fscanf(addresses, "%lx", &address) == 1) replace((char *)map->l_addr + address);
    if (addresses) fclose(addresses);
    return 0;
}
