/* What runs before and after a program on a Cortex-M board under an emulator: vectors, memory, the floating-point unit, and services
   of the host by semihosting. */
#include <stdint.h>
#include "board.h"

extern uint32_t board_stack_top, board_data_from, board_data_start, board_data_end, board_bss_start, board_bss_end;
int main(void);

intptr_t board_call(intptr_t operation, void *arguments) {
    register intptr_t r0 __asm__("r0") = operation;
    register void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory", "cc");
    return r0;
}

#if BOARD_COUNTER_BITS == 64
/* The system counter of SSE-300. */
void board_start_counter(void) { *(volatile uint32_t *)0x58100000u = 1u; }
uint64_t board_counter(void) {
    uint32_t low = *(volatile uint32_t *)0x58100008u;
    return (uint64_t)*(volatile uint32_t *)0x5810000cu << 32 | low;
}
#else
/* CMSDK timer 0, which counts down. */
void board_start_counter(void) {
    volatile uint32_t *timer = (volatile uint32_t *)0x40000000u;
    timer[2] = 0xffffffffu;
    timer[1] = 0xffffffffu;
    timer[0] = 1u;
}
uint64_t board_counter(void) { return 0xffffffffu - ((volatile uint32_t *)0x40000000u)[1]; }
#endif

void board_reset(void) __attribute__((noreturn));
void board_reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t *)0xe000ed88u |= 0xfu << 20;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    uint32_t *from = &board_data_from;
    for (uint32_t *at = &board_data_start; at < &board_data_end; at++) *at = *from++;
    for (uint32_t *at = &board_bss_start; at < &board_bss_end; at++) *at = 0;
    board_exit(main());
}

static void fault(void) __attribute__((noreturn));
static void fault(void) { board_exit(BOARD_FAULT); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &board_stack_top, board_reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault,
};
