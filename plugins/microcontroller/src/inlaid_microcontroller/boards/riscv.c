/* What runs before and after a program on a RISC-V board under an emulator: memory, and services of the host by semihosting. */
#include <stdint.h>
#include "board.h"

extern uint32_t board_data_from, board_data_start, board_data_end, board_bss_start, board_bss_end;
int main(void);

/* The three instructions must not be compressed, nor lie in two pages. */
__attribute__((naked, noinline, aligned(16))) intptr_t board_call(intptr_t operation, void *arguments) {
    (void)operation;
    (void)arguments;
    __asm__ volatile(".option push\n\t.option norvc\n\t"
                     "slli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\tret\n\t.option pop");
}

void board_start_counter(void) {}
uint64_t board_counter(void) {
    uint32_t low, high;
    __asm__ volatile("csrr %0, minstret\n\tcsrr %1, minstreth" : "=r"(low), "=r"(high));
    return (uint64_t)high << 32 | low;
}

static void start(void) __attribute__((noreturn, used));
static void start(void) {
    uint32_t *from = &board_data_from;
    for (uint32_t *at = &board_data_start; at < &board_data_end; at++) *at = *from++;
    for (uint32_t *at = &board_bss_start; at < &board_bss_end; at++) *at = 0;
    board_exit(main());
}

static void fault(void) __attribute__((noreturn, used, aligned(4)));
static void fault(void) { board_exit(BOARD_FAULT); }

__attribute__((naked, noreturn, section(".vectors"), used)) void board_reset(void) {
    __asm__ volatile("la sp, board_stack_top\n\tla t0, fault\n\tcsrw mtvec, t0\n\tcsrwi mcountinhibit, 0\n\tj start");
}
