/* Runs a model once: reads the inputs from the host's file "in", writes the outputs to "out", and to "report" the instructions that
   the run took, two words of it with an empty run first, the bytes of stack that were used, and those that the model used. */
#include <stdint.h>
#include "board.h"
#include "harness_model.h" /* harness_inputs, harness_outputs and their numbers, harness_run */

#define PAINT 0xa5a5a5a5u
extern uint32_t board_bss_end, board_stack_top;
register uint32_t *stack_pointer __asm__("sp");

static intptr_t opened(const char *name, intptr_t length, intptr_t mode) {
    intptr_t arguments[3] = {(intptr_t)name, mode, length};
    return board_call(1, arguments);
}

static int moved(intptr_t file, intptr_t operation, const void *at, uint32_t bytes) {
    intptr_t arguments[3] = {file, (intptr_t)at, (intptr_t)bytes};
    return board_call(operation, arguments) == 0;
}

static void closed(intptr_t file) { board_call(2, &file); }

int main(void) {
    intptr_t file = opened("in", 2, 1);
    if (file < 0) return BOARD_FAULT + 1;
    for (int index = 0; index < HARNESS_INPUTS; index++) {
        if (!moved(file, 6, harness_inputs[index].at, harness_inputs[index].bytes)) return BOARD_FAULT + 1;
    }
    closed(file);
    uint32_t *lowest = &board_bss_end;
    for (uint32_t *at = lowest; at < stack_pointer; at++) *at = PAINT;
    board_start_counter();
    uint64_t report[4];
    report[0] = board_counter();
    report[1] = board_counter();
    int status = harness_run();
    report[2] = board_counter();
    while (lowest < &board_stack_top && *lowest == PAINT) lowest++;
    report[0] = report[1] - report[0];
    report[1] = report[2] - report[1];
    report[2] = (uint32_t)((char *)&board_stack_top - (char *)lowest);
    report[3] = (uint32_t)((char *)stack_pointer - (char *)lowest);
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
