// Command queue of a module: 512 instructions in block RAM and one in the output register. One push and one pop per cycle; an
// instruction pushed into an empty queue is at the head two cycles later.
module vta_queue #(
    parameter int INDEX = 9
) (
    input logic clk,
    input logic rst,
    input logic push,
    input logic [127:0] push_data,
    output logic full,
    output logic valid,
    input logic pop,
    output logic [127:0] head
);
  logic [INDEX:0] written, read;
  logic advance, waiting;

  assign waiting = written != read;
  assign full = written - read == (INDEX + 1)'(1 << INDEX);
  assign advance = waiting && (!valid || pop);

  vta_ram #(.INDEX(INDEX), .LANES(1), .BITS(128)) ram (
      .clk, .write(push && !full), .write_index(written[INDEX-1:0]), .write_data(push_data),
      .read(advance), .read_index(read[INDEX-1:0]), .read_data(head));

  always_ff @(posedge clk)
    if (rst) begin
      written <= 0;
      read <= 0;
      valid <= 0;
    end else begin
      if (push && !full) written <= written + 1;
      if (advance) read <= read + 1;
      if (advance || pop) valid <= advance;
    end
endmodule
