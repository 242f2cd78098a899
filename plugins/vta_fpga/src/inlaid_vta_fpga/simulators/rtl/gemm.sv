// GEMM: ACC[dst] += INP[src] . WGT[wgt], 256 multiplications per cycle; with `reset`, ACC[dst] = 0. One micro-op per cycle, in a
// pipeline of four stages behind the indices: read of INP and WGT; products; sums of four and read of ACC; addition and write. Since
// the read of ACC and its write are one cycle apart and the memory forwards, any sequence of indices accumulates exactly.
module vta_gemm
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic valid,
    input logic reset,
    input logic [ACC_INDEX-1:0] dst,

    output logic operands_read,
    input logic [INP_BITS-1:0] inp,
    input logic [BLOCK-1:0][INP_BITS-1:0] wgt,  // a row for each output channel

    output logic acc_read,
    output logic [ACC_INDEX-1:0] acc_read_index,
    input logic [ACC_BITS-1:0] acc,
    output logic acc_write,
    output logic [ACC_INDEX-1:0] acc_write_index,
    output logic [ACC_BITS-1:0] result
);
  logic valid_b, valid_c, valid_d;
  logic [ACC_INDEX-1:0] dst_b, dst_c, dst_d;

  assign operands_read = valid && !reset;
  assign acc_read = valid_c && !reset;
  assign acc_read_index = dst_c;
  assign acc_write = valid_d;
  assign acc_write_index = dst_d;

  for (genvar lane = 0; lane < BLOCK; lane++) begin : lanes
    logic signed [31:0] sum;
    vta_dot dot (
        .clk, .multiply(valid_b && !reset), .add(valid_c && !reset), .inp,
        .wgt(wgt[lane]), .sum(sum));
    assign result[lane*32+:32] = reset ? 0 : acc[lane*32+:32] + sum;
  end

  always_ff @(posedge clk)
    if (rst) begin
      valid_b <= 0;
      valid_c <= 0;
      valid_d <= 0;
    end else begin
      valid_b <= valid;
      valid_c <= valid_b;
      valid_d <= valid_c;
      dst_b <= dst;
      dst_c <= dst_b;
      dst_d <= dst_c;
    end
endmodule
