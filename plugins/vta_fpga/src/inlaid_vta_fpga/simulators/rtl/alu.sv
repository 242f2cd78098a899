// ALU: ACC[dst] = op(ACC[dst], imm or ACC[src]), 16 lanes of int32. One micro-op per cycle with an immediate. With a tensor operand
// one per two cycles, since ACC has one read port: src, then dst. MIN and MAX are signed, ADD wraps. SHR is arithmetic; a negative
// amount shifts left. Only the low five bits of the amount's magnitude are used.
module vta_alu
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic valid,
    input logic [2:0] op,
    input logic use_imm,
    input logic [15:0] imm,
    input logic [ACC_INDEX-1:0] dst,
    input logic [ACC_INDEX-1:0] src,

    output logic acc_read,
    output logic [ACC_INDEX-1:0] acc_read_index,
    input logic [ACC_BITS-1:0] acc,
    output logic acc_write,
    output logic [ACC_INDEX-1:0] acc_write_index,
    output logic [ACC_BITS-1:0] result
);
  logic src_read, dst_read, write;
  logic [ACC_INDEX-1:0] dst_1, dst_2;
  logic [ACC_BITS-1:0] operand;

  assign acc_read = valid || src_read;
  assign acc_read_index = src_read ? dst_1 : use_imm ? dst : src;
  assign dst_read = src_read || (valid && use_imm);
  assign acc_write = write;
  assign acc_write_index = dst_2;

  function automatic logic [31:0] compute(
      input logic [2:0] code, input logic signed [31:0] x, input logic signed [31:0] y);
    logic [4:0] amount;
    amount = y[31] ? 5'(-y) : y[4:0];
    case (code)
      MIN: compute = x < y ? x : y;
      MAX: compute = x > y ? x : y;
      ADD: compute = x + y;
      default: compute = y[31] ? x << amount : x >>> amount;
    endcase
  endfunction

  for (genvar lane = 0; lane < BLOCK; lane++) begin : lanes
    assign result[lane*32+:32] = compute(op, acc[lane*32+:32], use_imm ? {{16{imm[15]}}, imm} : operand[lane*32+:32]);
  end

  always_ff @(posedge clk)
    if (rst) begin
      src_read <= 0;
      write <= 0;
    end else begin
      src_read <= valid && !use_imm;
      write <= dst_read;
      if (valid) dst_1 <= dst;
      if (dst_read) dst_2 <= src_read ? dst_1 : dst;
      if (src_read) operand <= acc;
    end
endmodule
