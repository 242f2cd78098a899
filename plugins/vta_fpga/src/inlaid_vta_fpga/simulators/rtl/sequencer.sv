// Index generator of GEMM and ALU: walks iter_out x iter_in x micro-ops, the micro-ops innermost, and adds the loops' offsets to each
// micro-op's indices. Issues one micro-op per cycle, or one per two cycles where `half_rate` holds; an issued micro-op has its indices
// at the outputs two cycles later (read of UOP, addition). An index above its memory's last is reported with `over`.
module vta_sequencer
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,  // with `loops` not empty
    input loops_t loops,  // stable while `active`
    input logic half_rate,
    input logic use_src,  // which indices the instruction uses
    input logic use_wgt,
    output logic active,
    output logic issued,

    output logic uop_read,
    output logic [UOP_INDEX-1:0] uop_index,
    input logic [31:0] uop,

    output logic valid,
    output logic [ACC_INDEX-1:0] dst,
    output logic [INP_INDEX-1:0] src,
    output logic [WGT_INDEX-1:0] wgt,
    output logic over
);
  // One bit more than an index: the first offset beyond a memory is reported before it grows further.
  typedef struct packed {
    logic [ACC_INDEX:0] dst;
    logic [INP_INDEX:0] src;
    logic [WGT_INDEX:0] wgt;
  } offsets_t;

  logic [13:0] u, i, j, last_u;
  logic phase, last_in_row, last, valid_1;
  offsets_t outer, inner, outer_next, inner_next, offsets_1;
  logic [ACC_INDEX+1:0] dst_sum;
  logic [INP_INDEX+1:0] src_sum;
  logic [WGT_INDEX+1:0] wgt_sum;

  assign last_u = loops.uop_end - 1;
  assign last_in_row = u == last_u;
  assign last = last_in_row && j == loops.iter_in - 1 && i == loops.iter_out - 1;
  assign issued = active && !phase;
  assign uop_read = issued;
  assign uop_index = u[UOP_INDEX-1:0];

  assign outer_next.dst = outer.dst + {1'b0, loops.dst_factor_out};
  assign outer_next.src = outer.src + {1'b0, loops.src_factor_out};
  assign outer_next.wgt = outer.wgt + {1'b0, loops.wgt_factor_out};
  assign inner_next.dst = inner.dst + {1'b0, loops.dst_factor_in};
  assign inner_next.src = inner.src + {1'b0, loops.src_factor_in};
  assign inner_next.wgt = inner.wgt + {1'b0, loops.wgt_factor_in};

  assign dst_sum = {2'b0, uop[10:0]} + {1'b0, offsets_1.dst};
  assign src_sum = {2'b0, uop[21:11]} + {1'b0, offsets_1.src};
  assign wgt_sum = {2'b0, uop[31:22]} + {1'b0, offsets_1.wgt};
  assign over = valid_1 && (dst_sum[ACC_INDEX+1:ACC_INDEX] != 0 || (use_src && src_sum[INP_INDEX+1:INP_INDEX] != 0)
                            || (use_wgt && wgt_sum[WGT_INDEX+1:WGT_INDEX] != 0));

  always_ff @(posedge clk)
    if (rst) begin
      active <= 0;
      valid_1 <= 0;
      valid <= 0;
    end else begin
      valid_1 <= issued;
      valid <= valid_1;
      offsets_1 <= inner;
      dst <= dst_sum[ACC_INDEX-1:0];
      src <= src_sum[INP_INDEX-1:0];
      wgt <= wgt_sum[WGT_INDEX-1:0];
      if (start) begin
        active <= 1;
        phase <= 0;
        u <= {1'b0, loops.uop_begin};
        i <= 0;
        j <= 0;
        outer <= 0;
        inner <= 0;
      end else if (active) begin
        phase <= half_rate && !phase;
        if (!half_rate || phase) begin
          if (last) active <= 0;
          if (!last_in_row) u <= u + 1;
          else begin
            u <= {1'b0, loops.uop_begin};
            if (j != loops.iter_in - 1) begin
              j <= j + 1;
              inner <= inner_next;
            end else begin
              j <= 0;
              i <= i + 1;
              outer <= outer_next;
              inner <= outer_next;
            end
          end
        end
      end
    end
endmodule
