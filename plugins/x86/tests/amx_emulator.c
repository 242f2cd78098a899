/* AMX on processors that lack it: its instructions raise SIGILL there, and a handler does what they say (Intel SDM, volume 2).
   Anything that the manual forbids, such as tiles of shapes that do not fit, ends the process with a message. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef struct { uint8_t rows; uint16_t bytes; uint8_t data[16][64]; } tile;
static __thread tile *tiles; /* of a thread, null until it configures them */
static struct sigaction before;
static long done;

static void forbid(const char *what) {
    ssize_t unused = write(2, what, strlen(what));
    (void)unused;
    _exit(70);
}

static tile *used(int number) {
    if (!tiles || number > 7 || tiles[number].rows == 0) forbid("AMX: a tile that is not configured\n");
    return &tiles[number];
}

static void configure(const uint8_t *memory) {
    if (!tiles) tiles = mmap(NULL, 8 * sizeof(tile), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tiles == MAP_FAILED) forbid("AMX: no memory\n");
    memset(tiles, 0, 8 * sizeof(tile));
    if (memory[0] != 1 || memory[1] != 0) forbid("AMX: another palette or start row\n");
    for (int i = 2; i < 16; i++) if (memory[i]) forbid("AMX: reserved bytes are set\n");
    for (int i = 0; i < 8; i++) {
        memcpy(&tiles[i].bytes, memory + 16 + 2 * i, 2);
        tiles[i].rows = memory[48 + i];
        if (tiles[i].rows > 16 || tiles[i].bytes > 64 || !tiles[i].rows != !tiles[i].bytes)
            forbid("AMX: a tile is too large\n");
    }
}

static float bfloat(const uint8_t *memory) {
    uint32_t bits = (uint32_t)(memory[0] | memory[1] << 8) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void product(tile *c, const tile *a, const tile *b, int floats, int signed_a, int signed_b) {
    if (a->rows != c->rows || a->bytes != 4 * b->rows || b->bytes != c->bytes) forbid("AMX: tiles do not fit\n");
    for (int m = 0; m < c->rows; m++) for (int k = 0; k < a->bytes / 4; k++) for (int n = 0; n < c->bytes / 4; n++) {
        const uint8_t *x = a->data[m] + 4 * k, *y = b->data[k] + 4 * n;
        if (floats) {
            float sum;
            memcpy(&sum, c->data[m] + 4 * n, 4);
            sum += bfloat(x) * bfloat(y);
            sum += bfloat(x + 2) * bfloat(y + 2);
            memcpy(c->data[m] + 4 * n, &sum, 4);
        } else {
            int32_t sum;
            memcpy(&sum, c->data[m] + 4 * n, 4);
            for (int p = 0; p < 4; p++) {
                int left = signed_a ? (int8_t)x[p] : x[p], right = signed_b ? (int8_t)y[p] : y[p];
                sum = (int32_t)((uint32_t)sum + (uint32_t)(left * right));
            }
            memcpy(c->data[m] + 4 * n, &sum, 4);
        }
    }
}

static const int registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void on_sigill(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)regs[REG_RIP];
    uint8_t opcode = code[3];
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (opcode != 0x49 && opcode != 0x4B && opcode != 0x5C && opcode != 0x5E)) {
        sigaction(SIGILL, &before, NULL);
        return;
    }
    int prefix = code[2] & 3, third = ~(code[2] >> 3) & 15, modrm = code[4], mode = modrm >> 6, reg = modrm >> 3 & 7, rm = modrm & 7;
    int length = 5;
    int64_t base = 0, index = 0;
    if (mode != 3) {
        int displacement = mode == 1 ? 1 : mode == 2 ? 4 : 0, has_base = 1, relative = 0;
        if (rm == 4) {
            int sib = code[length++], low = sib & 7, middle = sib >> 3 & 7;
            int place = middle | (code[1] & 0x40 ? 0 : 8);
            if (place != 4) index = regs[registers[place]] << (sib >> 6);
            if (low == 5 && mode == 0) { displacement = 4; has_base = 0; }
            rm = low;
        } else if (rm == 5 && mode == 0) { displacement = 4; has_base = 0; relative = 1; }
        if (has_base) base = regs[registers[rm | (code[1] & 0x20 ? 0 : 8)]];
        if (displacement == 1) base += (int8_t)code[length];
        if (displacement == 4) { int32_t far; memcpy(&far, code + length, 4); base += far; }
        length += displacement;
        if (relative) base += regs[REG_RIP] + length;
    }
    if (opcode == 0x49 && mode == 3 && prefix == 0) {
        if (tiles) memset(tiles, 0, 8 * sizeof(tile));
    }
    else if (opcode == 0x49 && mode == 3) memset(used(reg)->data, 0, sizeof(tiles->data));
    else if (opcode == 0x49) configure((const uint8_t *)(base + index));
    else if (opcode == 0x4B) {
        tile *t = used(reg);
        for (int row = 0; row < t->rows; row++) {
            uint8_t *memory = (uint8_t *)(base + row * index);
            if (prefix == 2) memcpy(memory, t->data[row], t->bytes);
            else { memset(t->data[row], 0, 64); memcpy(t->data[row], memory, t->bytes); }
        }
    } else product(used(reg), used(rm), used(third), opcode == 0x5C, prefix & 2, prefix & 1);
    __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
    regs[REG_RIP] += length;
}

void install(void) {
    struct sigaction action = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, &before);
}

void uninstall(void) { sigaction(SIGILL, &before, NULL); }

long emulated(void) { return done; }
