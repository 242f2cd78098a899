/* Runs a model once: reads the inputs from the host's file "in", writes the outputs to "out", and to "report" the instructions that
   the run took, two words of it with an empty run first, and the bytes of stack that it used. */
#include <stdint.h>
#include "board.h"
#include "harness_model.h" /* harness_inputs, harness_outputs and their numbers, harness_run */

#define PAINT 0xa5a5a5a5u
extern uint32_t board_bss_end, board_stack_top;

static intptr_t opened(const char *name, intptr_t length, intptr_t mode) {
    intptr_t arguments[3] = {(intptr_t)name, mode, length};
    return board_call(1, arguments);
}

static int moved(intptr_t file, intptr_t operation, const void *at, uint32_t bytes) {
    intptr_t arguments[3] = {file, (intptr_t)at, (intptr_t)bytes};
    return board_call(operation, arguments) == 0;
}

static void closed(intptr_t file) { board_call(2, &file); }

__attribute__((noinline)) static uint32_t *stack_pointer(void) { return (uint32_t *)__builtin_frame_address(0); }

int main(void) {
    intptr_t file = opened("in", 2, 1);
    if (file < 0) return BOARD_FAULT + 1;
    for (int index = 0; index < HARNESS_INPUTS; index++) {
        if (!moved(file, 6, harness_inputs[index].at, harness_inputs[index].bytes)) return BOARD_FAULT + 1;
    }
    closed(file);
    uint32_t *lowest = &board_bss_end;
    for (uint32_t *at = lowest; at < stack_pointer() - 16; at++) *at = PAINT;
    board_start_counter();
    uint64_t counts[3];
    counts[0] = board_counter();
    counts[1] = board_counter();
    int status = harness_run();
    counts[2] = board_counter();
    while (lowest < &board_stack_top && *lowest == PAINT) lowest++;
    uint64_t report[3] = {counts[1] - counts[0], counts[2] - counts[1], (uint64_t)((char *)&board_stack_top - (char *)lowest)};
    file = opened("out", 3, 5);
    for (int index = 0; index < HARNESS_OUTPUTS; index++) {
        if (!moved(file, 5, harness_outputs[index].at, harness_outputs[index].bytes)) return BOARD_FAULT + 1;
    }
    closed(file);
    file = opened("report", 6, 5);
    moved(file, 5, report, sizeof report);
    closed(file);
    return status;
}
