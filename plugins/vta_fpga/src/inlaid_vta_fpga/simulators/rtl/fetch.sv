// Fetch: reads the instruction stream and routes each instruction to a module's command queue. It reads a batch of up to 128
// instructions (one burst), then dispatches one per cycle while the queue of each has room, then reads the next batch. An instruction
// that breaks a rule of its fields is not dispatched: fetch stops and reports it.
module vta_fetch
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,
    input logic [ADDRESS-1:0] start_address,
    input logic [31:0] start_count,
    output logic busy,  // reads or dispatches, and is not held up by a full queue
    output rule_t rule,
    output logic [31:0] dispatched,

    output logic command_valid,
    input logic command_ready,
    output logic [ADDRESS-1:0] command_address,
    output logic [8:0] command_beats,
    input logic data_valid,
    input logic data_last,
    input logic [BUS-1:0] data,

    output logic [127:0] insn,
    output logic push_load,
    output logic push_compute,
    output logic push_store,
    input logic load_full,
    input logic compute_full,
    input logic store_full
);
  typedef enum logic [1:0] {IDLE, REQUEST, RECEIVE, DISPATCH} state_t;
  state_t state;

  logic [BUS-1:0] low[128], high[128];
  logic [ADDRESS-1:0] address;
  logic [31:0] remaining;
  logic [7:0] beat;
  logic [6:0] slot, last_slot;
  logic full, dispatch;
  rule_t broken;
  transfer_t fields;

  assign command_valid = state == REQUEST;
  assign command_address = address;
  // Streams are 16-byte aligned, so that bursts are whole instructions.
  assign command_beats = burst(address, remaining >= 128 ? 22'd256 : {14'b0, remaining[6:0], 1'b0});

  assign insn = {high[slot], low[slot]};
  assign fields = insn;
  assign broken = rule_of(insn);
  assign dispatch = state == DISPATCH && broken == LEGAL && !full;
  assign rule = state == DISPATCH ? broken : LEGAL;
  assign busy = state == REQUEST || state == RECEIVE || dispatch;

  always_comb begin
    push_load = 0;
    push_compute = 0;
    push_store = 0;
    if (fields.opcode == LOAD && (fields.memory == INP || fields.memory == WGT)) begin
      full = load_full;
      push_load = dispatch;
    end else if (fields.opcode == STORE) begin
      full = store_full;
      push_store = dispatch;
    end else begin
      full = compute_full;
      push_compute = dispatch;
    end
  end

  always_ff @(posedge clk) begin
    if (state == RECEIVE && data_valid && !beat[0]) low[beat[7:1]] <= data;
    if (state == RECEIVE && data_valid && beat[0]) high[beat[7:1]] <= data;
  end

  always_ff @(posedge clk)
    if (rst) begin
      state <= IDLE;
      dispatched <= 0;
    end else
      case (state)
        IDLE:
          if (start) begin
            state <= start_count == 0 ? IDLE : REQUEST;
            address <= start_address;
            remaining <= start_count;
            dispatched <= 0;
          end
        REQUEST:
          if (command_ready) begin
            state <= RECEIVE;
            address <= address + ADDRESS'({command_beats, 3'b0});
            remaining <= remaining - {24'b0, command_beats[8:1]};
            last_slot <= command_beats[7:1] - 1;
            beat <= 0;
          end
        RECEIVE:
          if (data_valid) begin
            beat <= beat + 1;
            slot <= 0;
            if (data_last) state <= DISPATCH;
          end
        DISPATCH:
          if (dispatch) begin
            slot <= slot + 1;
            dispatched <= dispatched + 1;
            if (slot == last_slot) state <= remaining == 0 ? IDLE : REQUEST;
          end
      endcase
endmodule
