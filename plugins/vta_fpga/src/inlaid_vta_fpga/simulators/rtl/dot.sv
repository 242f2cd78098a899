// One output channel of GEMM: the dot product of 16 int8 pairs, in 3 cycles: products (DSP blocks), sums of four products, sum.
// The last sum is not registered. Exact: 21 bits.
module vta_dot
  import vta_types::*;
(
    input logic clk,
    input logic multiply,  // operands are valid
    input logic add,  // products are valid
    input logic [INP_BITS-1:0] inp,
    input logic [INP_BITS-1:0] wgt,
    output logic signed [31:0] sum
);
  (* mem2reg *)logic signed [15:0] product[BLOCK];
  (* mem2reg *)logic signed [17:0] partial[BLOCK/4];

  always_ff @(posedge clk) begin
    if (multiply)
      for (int lane = 0; lane < BLOCK; lane++) product[lane] <= $signed(inp[lane*8+:8]) * $signed(wgt[lane*8+:8]);
    if (add)
      for (int four = 0; four < BLOCK / 4; four++)
        partial[four] <= 18'(product[four*4]) + 18'(product[four*4+1]) + 18'(product[four*4+2]) + 18'(product[four*4+3]);
  end

  assign sum = 32'(partial[0]) + 32'(partial[1]) + 32'(partial[2]) + 32'(partial[3]);
endmodule
