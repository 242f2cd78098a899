// Transfer engine of LOAD INP, WGT and ACC: rows from DRAM to consecutive SRAM elements, with zero elements around.
//
// The first request is made y_pad_0 cycles late: the SRAM index of the first row is summed up meanwhile. From then on two walkers go
// through the SRAM range: one writes arriving beats, one per cycle; the other writes zero elements, one per cycle in cycles without an
// arriving beat. `done` rises in the cycle after the last write.
module vta_loader
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,
    input transfer_t insn,  // stable from `start` to `done`
    input logic [2:0] log_beats,  // log2 of the beats of an element
    output logic done,

    output logic command_valid,
    input logic command_ready,
    output logic [ADDRESS-1:0] command_address,
    output logic [8:0] command_beats,
    input logic data_valid,

    output logic write_beat,  // the arriving beat is beat `beat` of element `index`
    output logic write_zero,  // element `index` becomes zero
    output logic [4:0] beat,
    output logic [SRAM_ADDRESS-1:0] index
);
  logic active;
  logic [16:0] row;  // elements of a row in SRAM, padding included
  logic [3:0] skip;  // zero rows that `data_index` has yet to pass
  logic [SRAM_ADDRESS-1:0] data_index, zero_row, zero_index;
  logic [15:0] x, rows_left;
  logic [16:0] y, all_rows, zero_x, zeros;
  logic [4:0] last_beat;
  logic data_row, has_zeros;

  assign row = 17'(insn.x_size) + 17'(insn.x_pad_0) + 17'(insn.x_pad_1);
  assign last_beat = 5'((32'd1 << log_beats) - 1);

  vta_requests requests (
      .clk, .rst, .start, .enable(active && skip == 0),
      .base(ADDRESS'(insn.dram_base) << (log_beats + 3)), .rows(insn.y_size),
      .row_beats(22'(insn.x_size) << log_beats), .stride(24'(insn.x_stride) << (log_beats + 3)),
      .command_valid, .command_ready, .command_address, .command_beats);

  // Walker of zero elements: row `y` of all has `zeros` of them, and its data elements, if any, are passed over at once.
  assign all_rows = 17'(insn.y_pad_0) + 17'(insn.y_size) + 17'(insn.y_pad_1);
  assign data_row = y >= 17'(insn.y_pad_0) && y < 17'(insn.y_pad_0) + 17'(insn.y_size);
  assign zeros = data_row ? 17'(insn.x_pad_0) + 17'(insn.x_pad_1) : row;
  assign has_zeros = active && y < all_rows && zeros != 0;
  assign zero_index = zero_row + SRAM_ADDRESS'(zero_x)
      + (data_row && zero_x >= 17'(insn.x_pad_0) ? SRAM_ADDRESS'(insn.x_size) : 0);

  assign write_beat = data_valid && active;
  assign write_zero = has_zeros && !data_valid;
  assign index = data_valid ? data_index : zero_index;
  assign done = active && rows_left == 0 && y == all_rows;

  always_ff @(posedge clk)
    if (rst) active <= 0;
    else if (start) begin
      active <= 1;
      skip <= insn.y_pad_0;
      data_index <= SRAM_ADDRESS'(insn.sram_base) + SRAM_ADDRESS'(insn.x_pad_0);
      rows_left <= insn.y_size;
      x <= 0;
      beat <= 0;
      y <= 0;
      zero_x <= 0;
      zero_row <= SRAM_ADDRESS'(insn.sram_base);
    end else if (active) begin
      if (done) active <= 0;
      if (skip != 0) begin
        skip <= skip - 1;
        data_index <= data_index + SRAM_ADDRESS'(row);
      end
      if (data_valid) begin
        beat <= beat == last_beat ? 0 : beat + 1;
        if (beat == last_beat)
          if (x == insn.x_size - 1) begin
            x <= 0;
            rows_left <= rows_left - 1;
            data_index <= data_index + 1 + SRAM_ADDRESS'(insn.x_pad_0) + SRAM_ADDRESS'(insn.x_pad_1);
          end else begin
            x <= x + 1;
            data_index <= data_index + 1;
          end
      end
      if (write_zero && zero_x + 1 != zeros) zero_x <= zero_x + 1;
      else if (y < all_rows && (write_zero || zeros == 0)) begin
        zero_x <= 0;
        zero_row <= zero_row + SRAM_ADDRESS'(row);
        y <= y + 1;
      end
    end
endmodule
