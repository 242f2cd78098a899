// One-write, one-read memory with a registered read port and one write enable per lane (block RAM). A read of the address that is
// written in the same cycle returns the old data.
module vta_ram #(
    parameter int INDEX = 11,
    parameter int LANES = 1,
    parameter int BITS = 64  // of a lane
) (
    input logic clk,
    input logic [LANES-1:0] write,
    input logic [INDEX-1:0] write_index,
    input logic [LANES*BITS-1:0] write_data,
    input logic read,
    input logic [INDEX-1:0] read_index,
    output logic [LANES*BITS-1:0] read_data
);
  logic [LANES*BITS-1:0] memory[1<<INDEX];

  always_ff @(posedge clk) begin
    for (int lane = 0; lane < LANES; lane++)
      if (write[lane]) memory[write_index][lane*BITS+:BITS] <= write_data[lane*BITS+:BITS];
    if (read) read_data <= memory[read_index];
  end
endmodule
