// Transfer engine of LOAD UOP: one row of 32-bit micro-ops, two of each beat; DRAM and SRAM indices need not be even. The memory has
// two banks, for even and odd indices. `done` rises in the cycle after the last write.
module vta_uop_loader
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,
    input transfer_t insn,  // stable from `start` to `done`
    output logic done,

    output logic command_valid,
    input logic command_ready,
    output logic [ADDRESS-1:0] command_address,
    output logic [8:0] command_beats,
    input logic data_valid,
    input logic [BUS-1:0] data,

    output logic [1:0] write,  // of the bank of even and of odd indices
    output logic [SRAM_ADDRESS-2:0] even_row,  // index / 2 in each bank
    output logic [SRAM_ADDRESS-2:0] odd_row,
    output logic [31:0] even_data,
    output logic [31:0] odd_data
);
  logic active;
  logic [16:0] left;  // micro-ops yet to arrive
  logic [SRAM_ADDRESS-1:0] index;  // of the beat's low word
  logic first, low, high;

  vta_requests requests (
      .clk, .rst, .start, .enable(active),
      .base({6'b0, insn.dram_base[31:1], 3'b0}), .rows(16'd1),
      .row_beats((22'(insn.x_size) + 22'(insn.dram_base[0]) + 22'd1) >> 1), .stride(24'd0),
      .command_valid, .command_ready, .command_address, .command_beats);

  // The first beat of an odd DRAM index has no low word, the last beat may have no high word.
  assign low = !(first && insn.dram_base[0]);
  assign high = left > 17'(low);
  assign done = active && left == 0;

  always_comb begin
    write[0] = data_valid && active && (index[0] ? high : low);
    write[1] = data_valid && active && (index[0] ? low : high);
    even_row = index[SRAM_ADDRESS-1:1] + (SRAM_ADDRESS - 1)'(index[0]);
    odd_row = index[SRAM_ADDRESS-1:1];
    even_data = index[0] ? data[63:32] : data[31:0];
    odd_data = index[0] ? data[31:0] : data[63:32];
  end

  always_ff @(posedge clk)
    if (rst) active <= 0;
    else if (start) begin
      active <= 1;
      first <= 1;
      left <= 17'(insn.x_size);
      index <= SRAM_ADDRESS'(insn.sram_base) - SRAM_ADDRESS'(insn.dram_base[0]);
    end else if (active) begin
      if (done) active <= 0;
      if (data_valid) begin
        first <= 0;
        left <= left - 17'(low) - 17'(high);
        index <= index + 2;
      end
    end
endmodule
