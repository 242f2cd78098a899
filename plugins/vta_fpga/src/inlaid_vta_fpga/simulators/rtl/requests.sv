// Read requests of a transfer: rows of consecutive beats, `stride` bytes apart, one burst per cycle. Each row starts a new burst.
// Inputs but `command_ready` are sampled in the cycle of `start`; requests are made while `enable` holds.
module vta_requests
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,
    input logic enable,
    input logic [ADDRESS-1:0] base,
    input logic [15:0] rows,
    input logic [21:0] row_beats,
    input logic [23:0] stride,

    output logic command_valid,
    input logic command_ready,
    output logic [ADDRESS-1:0] command_address,
    output logic [8:0] command_beats
);
  logic [ADDRESS-1:0] row_address, address;
  logic [15:0] rows_left;
  logic [21:0] beats_left;
  logic [ADDRESS-1:0] next_row;

  assign command_valid = enable && rows_left != 0;
  assign command_address = address;
  assign command_beats = burst(address, beats_left);
  assign next_row = row_address + ADDRESS'(stride);

  always_ff @(posedge clk)
    if (rst) rows_left <= 0;
    else if (start) begin
      row_address <= base;
      address <= base;
      rows_left <= rows;
      beats_left <= row_beats;
    end else if (command_valid && command_ready) begin
      if (beats_left == 22'(command_beats)) begin
        rows_left <= rows_left - 1;
        row_address <= next_row;
        address <= next_row;
        beats_left <= row_beats;
      end else begin
        address <= address + ADDRESS'({command_beats, 3'b0});
        beats_left <= beats_left - 22'(command_beats);
      end
    end
endmodule
