// Store module: runs STORE: rows of consecutive OUT elements, which it reads from the compute module, to DRAM.
// Cycles: 1 to accept and 1 to push tokens; of each burst 1 to plan, 1 for the address, 3 for each element (read of OUT, two beats), 2
// for the response, 1 to go on. Bursts do not overlap. A no-op takes 2.
module vta_store
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic insn_valid,
    input logic [127:0] insn_word,
    output logic insn_pop,
    output logic busy,
    output rule_t rule,
    output logic [31:0] completed,

    input logic token_from_compute,  // g2s
    output logic pop_from_compute,
    output logic push_to_compute,  // s2g

    output logic out_read,
    output logic [ACC_INDEX-1:0] out_index,
    input logic [OUT_BITS-1:0] out,

    output logic write_valid,
    input logic write_ready,
    output logic [ADDRESS-1:0] write_address,
    output logic [8:0] write_beats,
    output logic write_data_valid,
    output logic [BUS-1:0] write_data,
    input logic write_response
);
  typedef enum logic [3:0] {IDLE, PLAN, REQUEST, READ, LOW, HIGH, RESPONSE, NEXT, DONE} state_t;
  state_t state;

  transfer_t insn;
  logic accept;
  logic [ADDRESS-1:0] row_address, address;
  logic [15:0] rows_left, x_left;
  logic [SRAM_ADDRESS-1:0] index;
  logic [7:0] burst_left;

  assign insn = insn_word;
  assign accept = state == IDLE && insn_valid && (token_from_compute || !insn.pop_prev);
  assign pop_from_compute = accept && insn.pop_prev;
  assign push_to_compute = state == DONE && insn.push_prev;
  assign insn_pop = state == DONE;
  assign busy = state != IDLE || accept;
  assign rule = state == READ && index >= SRAM_ADDRESS'(1 << ACC_INDEX) ? BAD_INDEX : LEGAL;

  assign out_read = state == READ;
  assign out_index = index[ACC_INDEX-1:0];
  assign write_valid = state == REQUEST;
  assign write_address = address;
  assign write_beats = {burst_left, 1'b0};
  assign write_data_valid = state == LOW || state == HIGH;
  assign write_data = state == LOW ? out[BUS-1:0] : out[2*BUS-1:BUS];

  always_ff @(posedge clk)
    if (rst) begin
      state <= IDLE;
      completed <= 0;
    end else
      case (state)
        IDLE:
          if (accept) begin
            state <= insn.x_size != 0 ? PLAN : DONE;
            row_address <= ADDRESS'(insn.dram_base) << 4;
            address <= ADDRESS'(insn.dram_base) << 4;
            rows_left <= insn.y_size;
            x_left <= insn.x_size;
            index <= SRAM_ADDRESS'(insn.sram_base);
          end
        PLAN: begin
          state <= REQUEST;
          burst_left <= 8'(burst(address, {5'b0, x_left, 1'b0}) >> 1);
        end
        REQUEST:
          if (write_ready) begin
            state <= READ;
            address <= address + ADDRESS'({burst_left, 4'b0});
            x_left <= x_left - 16'(burst_left);
          end
        READ: begin
          state <= LOW;
          index <= index + 1;
          burst_left <= burst_left - 1;
        end
        LOW: state <= HIGH;
        HIGH: state <= burst_left == 0 ? RESPONSE : READ;
        RESPONSE: if (write_response) state <= NEXT;
        NEXT:
          if (x_left != 0) state <= PLAN;
          else begin
            state <= rows_left == 1 ? DONE : PLAN;
            rows_left <= rows_left - 1;
            x_left <= insn.x_size;
            row_address <= row_address + {20'b0, insn.x_stride, 4'b0};
            address <= row_address + {20'b0, insn.x_stride, 4'b0};
          end
        default: begin
          state <= IDLE;
          completed <= completed + 1;
        end
      endcase
endmodule
