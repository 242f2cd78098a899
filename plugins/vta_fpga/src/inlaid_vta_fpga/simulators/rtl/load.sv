// Load module: runs LOAD of INP and WGT, one instruction at a time, and holds both memories, which GEMM reads.
// Cycles: 1 to accept, y_pad_0, 1 for the first request, DRAM, 1 after the last write, 1 to push tokens; a no-op takes 2.
module vta_load
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

    input logic token_from_compute,  // g2l
    output logic pop_from_compute,
    output logic push_to_compute,  // l2g

    output logic command_valid,
    input logic command_ready,
    output logic [ADDRESS-1:0] command_address,
    output logic [8:0] command_beats,
    input logic data_valid,
    input logic [BUS-1:0] data,

    input logic operands_read,
    input logic [INP_INDEX-1:0] inp_index,
    output logic [INP_BITS-1:0] inp,
    input logic [WGT_INDEX-1:0] wgt_index,
    output logic [WGT_BITS-1:0] wgt
);
  typedef enum logic [1:0] {IDLE, RUN, DONE} state_t;
  state_t state;

  transfer_t insn;
  logic is_wgt, accept, start, loaded, write_beat, write_zero, over;
  logic [4:0] beat;
  logic [SRAM_ADDRESS-1:0] index;
  logic [1:0] inp_write;
  logic [31:0] wgt_write;
  logic [BUS-1:0] value;

  assign insn = insn_word;
  assign is_wgt = insn.memory == WGT;
  assign accept = state == IDLE && insn_valid && (token_from_compute || !insn.pop_next);
  assign start = accept && insn.x_size != 0;
  assign pop_from_compute = accept && insn.pop_next;
  assign push_to_compute = state == DONE && insn.push_next;
  assign insn_pop = state == DONE;
  assign busy = state != IDLE || accept;

  vta_loader loader (
      .clk, .rst, .start, .insn, .log_beats(is_wgt ? 3'd5 : 3'd1), .done(loaded),
      .command_valid, .command_ready, .command_address, .command_beats, .data_valid,
      .write_beat, .write_zero, .beat, .index);

  assign over = index >= (is_wgt ? SRAM_ADDRESS'(1 << WGT_INDEX) : SRAM_ADDRESS'(1 << INP_INDEX));
  assign rule = (write_beat || write_zero) && over ? BAD_INDEX : LEGAL;
  assign value = write_beat ? data : 0;

  always_comb begin
    inp_write = 0;
    wgt_write = 0;
    if (write_zero && is_wgt) wgt_write = '1;
    if (write_zero && !is_wgt) inp_write = '1;
    if (write_beat && is_wgt) wgt_write[beat] = 1;
    if (write_beat && !is_wgt) inp_write[beat[0]] = 1;
  end

  vta_ram #(.INDEX(INP_INDEX), .LANES(INP_BITS / BUS), .BITS(BUS)) inp_ram (
      .clk, .write(inp_write), .write_index(index[INP_INDEX-1:0]), .write_data({(INP_BITS / BUS) {value}}),
      .read(operands_read), .read_index(inp_index), .read_data(inp));

  vta_ram #(.INDEX(WGT_INDEX), .LANES(WGT_BITS / BUS), .BITS(BUS)) wgt_ram (
      .clk, .write(wgt_write), .write_index(index[WGT_INDEX-1:0]), .write_data({(WGT_BITS / BUS) {value}}),
      .read(operands_read), .read_index(wgt_index), .read_data(wgt));

  always_ff @(posedge clk)
    if (rst) begin
      state <= IDLE;
      completed <= 0;
    end else
      case (state)
        IDLE: if (accept) state <= start ? RUN : DONE;
        RUN: if (loaded) state <= DONE;
        default: begin
          state <= IDLE;
          completed <= completed + 1;
        end
      endcase
endmodule
