// Compute module: runs GEMM, ALU, LOAD of UOP and ACC, and FINISH, one instruction at a time; holds the UOP, ACC and OUT memories.
// Cycles: GEMM and ALU with an immediate N + 8 for N micro-ops, ALU with a tensor operand 2N + 8 (1 to accept, 1 to start, N to issue,
// 5 to drain the pipeline, 1 to push tokens); LOAD as in the load module; a no-op and FINISH 2.
//
// Every result of GEMM and ALU is also written to OUT, truncated to int8, which is what STORE reads; a reset writes ACC only, as in the
// Chisel core. ACC forwards a write to a read of the same address in the same cycle.
module vta_compute
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
    output logic finished,
    output logic gemm_issued,  // one micro-op, for the performance counters
    output logic reset_issued,
    output logic alu_issued,

    input logic token_from_load,  // l2g
    input logic token_from_store,  // s2g
    output logic pop_from_load,
    output logic pop_from_store,
    output logic push_to_load,  // g2l
    output logic push_to_store,  // g2s

    output logic [1:0] command_valid,  // UOP, ACC
    input logic [1:0] command_ready,
    output logic [1:0][ADDRESS-1:0] command_address,
    output logic [1:0][8:0] command_beats,
    input logic [1:0] data_valid,
    input logic [BUS-1:0] data,

    output logic operands_read,
    output logic [INP_INDEX-1:0] inp_index,
    input logic [INP_BITS-1:0] inp,
    output logic [WGT_INDEX-1:0] wgt_index,
    input logic [WGT_BITS-1:0] wgt,

    input logic out_read,
    input logic [ACC_INDEX-1:0] out_index,
    output logic [OUT_BITS-1:0] out
);
  typedef enum logic [2:0] {IDLE, TRANSFER, START, ISSUE, DRAIN, DONE} state_t;
  state_t state;
  logic [2:0] drain;

  // Decoding.
  transfer_t transfer;
  loops_t loops;
  logic is_load, is_loops, is_gemm, is_alu, use_imm, accept, tokens, transfers;

  assign transfer = insn_word;
  assign loops = insn_word;
  assign is_load = transfer.opcode == LOAD;
  assign is_gemm = transfer.opcode == GEMM;
  assign is_alu = transfer.opcode == ALU;
  assign is_loops = is_gemm || is_alu;
  assign use_imm = insn_word[111];
  assign tokens = (token_from_load || !transfer.pop_prev) && (token_from_store || !transfer.pop_next);
  assign accept = state == IDLE && insn_valid && tokens;
  assign transfers = accept && is_load && transfer.x_size != 0;
  assign pop_from_load = accept && transfer.pop_prev;
  assign pop_from_store = accept && transfer.pop_next;
  assign push_to_load = state == DONE && transfer.push_prev;
  assign push_to_store = state == DONE && transfer.push_next;
  assign insn_pop = state == DONE;
  assign busy = state != IDLE || accept;

  // Transfers.
  logic uop_loaded, acc_loaded, acc_beat, acc_zero;
  logic [1:0] uop_write;
  logic [SRAM_ADDRESS-2:0] even_row, odd_row;
  logic [31:0] even_data, odd_data;
  logic [4:0] beat;
  logic [SRAM_ADDRESS-1:0] acc_load_index;

  vta_uop_loader uop_loader (
      .clk, .rst, .start(transfers && transfer.memory == UOP), .insn(transfer), .done(uop_loaded),
      .command_valid(command_valid[0]), .command_ready(command_ready[0]), .command_address(command_address[0]),
      .command_beats(command_beats[0]), .data_valid(data_valid[0]), .data,
      .write(uop_write), .even_row, .odd_row, .even_data, .odd_data);

  vta_loader acc_loader (
      .clk, .rst, .start(transfers && transfer.memory == ACC), .insn(transfer), .log_beats(3'd3), .done(acc_loaded),
      .command_valid(command_valid[1]), .command_ready(command_ready[1]), .command_address(command_address[1]),
      .command_beats(command_beats[1]), .data_valid(data_valid[1]),
      .write_beat(acc_beat), .write_zero(acc_zero), .beat, .index(acc_load_index));

  // Micro-ops, in two banks.
  logic uop_read, uop_odd;
  logic [UOP_INDEX-1:0] uop_index;
  logic [31:0] even_uop, odd_uop;

  vta_ram #(.INDEX(UOP_INDEX - 1), .BITS(32)) even_uops (
      .clk, .write(uop_write[0]), .write_index(even_row[UOP_INDEX-2:0]), .write_data(even_data),
      .read(uop_read), .read_index(uop_index[UOP_INDEX-1:1]), .read_data(even_uop));
  vta_ram #(.INDEX(UOP_INDEX - 1), .BITS(32)) odd_uops (
      .clk, .write(uop_write[1]), .write_index(odd_row[UOP_INDEX-2:0]), .write_data(odd_data),
      .read(uop_read), .read_index(uop_index[UOP_INDEX-1:1]), .read_data(odd_uop));
  always_ff @(posedge clk) uop_odd <= uop_index[0];

  // Indices.
  logic sequencing, issued, indices_valid, over;
  logic [ACC_INDEX-1:0] dst;
  logic [INP_INDEX-1:0] src;

  vta_sequencer sequencer (
      .clk, .rst, .start(state == START), .loops, .half_rate(is_alu && !use_imm),
      .use_src(is_gemm ? !loops.reset : !use_imm), .use_wgt(is_gemm && !loops.reset),
      .active(sequencing), .issued, .uop_read, .uop_index, .uop(uop_odd ? odd_uop : even_uop),
      .valid(indices_valid), .dst, .src, .wgt(wgt_index), .over);

  assign inp_index = src;
  assign gemm_issued = issued && is_gemm && !loops.reset;
  assign reset_issued = issued && is_gemm && loops.reset;
  assign alu_issued = issued && is_alu;

  // Arithmetic.
  logic gemm_read, gemm_write, alu_read, alu_write, acc_read, acc_write;
  logic [ACC_INDEX-1:0] gemm_read_index, gemm_write_index, alu_read_index, alu_write_index, acc_read_index, acc_write_index;
  logic [ACC_BITS-1:0] gemm_result, alu_result, result, acc;

  vta_gemm gemm (
      .clk, .rst, .valid(indices_valid && is_gemm), .reset(loops.reset), .dst, .operands_read, .inp, .wgt,
      .acc_read(gemm_read), .acc_read_index(gemm_read_index), .acc,
      .acc_write(gemm_write), .acc_write_index(gemm_write_index), .result(gemm_result));

  vta_alu alu (
      .clk, .rst, .valid(indices_valid && is_alu), .op(insn_word[110:108]), .use_imm, .imm(insn_word[127:112]), .dst, .src,
      .acc_read(alu_read), .acc_read_index(alu_read_index), .acc,
      .acc_write(alu_write), .acc_write_index(alu_write_index), .result(alu_result));

  assign acc_read = gemm_read || alu_read;
  assign acc_read_index = alu_read ? alu_read_index : gemm_read_index;
  assign acc_write = gemm_write || alu_write;
  assign acc_write_index = alu_write ? alu_write_index : gemm_write_index;
  assign result = alu_write ? alu_result : gemm_result;

  // Accumulators and results.
  logic [7:0] acc_lanes;
  logic [ACC_BITS-1:0] acc_stored, forwarded;
  logic forward;
  logic [OUT_BITS-1:0] truncated;

  always_comb begin
    acc_lanes = acc_write || acc_zero ? '1 : 0;
    if (acc_beat) acc_lanes[beat[2:0]] = 1;
    for (int lane = 0; lane < BLOCK; lane++) truncated[lane*8+:8] = result[lane*32+:8];
  end

  vta_ram #(.INDEX(ACC_INDEX), .LANES(ACC_BITS / BUS), .BITS(BUS)) acc_ram (
      .clk, .write(acc_lanes), .write_index(acc_write ? acc_write_index : acc_load_index[ACC_INDEX-1:0]),
      .write_data(acc_write ? result : acc_beat ? {(ACC_BITS / BUS) {data}} : 0),
      .read(acc_read), .read_index(acc_read_index), .read_data(acc_stored));

  vta_ram #(.INDEX(ACC_INDEX), .LANES(1), .BITS(OUT_BITS)) out_ram (
      .clk, .write(acc_write && !(is_gemm && loops.reset)), .write_index(acc_write_index), .write_data(truncated),
      .read(out_read), .read_index(out_index), .read_data(out));

  always_ff @(posedge clk) begin
    forward <= acc_read && acc_write && acc_read_index == acc_write_index;
    if (acc_read && acc_write && acc_read_index == acc_write_index) forwarded <= result;
  end
  assign acc = forward ? forwarded : acc_stored;

  // Illegal indices.
  logic uop_over, acc_over;
  assign uop_over = (uop_write[0] && even_row >= (SRAM_ADDRESS - 1)'(1 << (UOP_INDEX - 1)))
                    || (uop_write[1] && odd_row >= (SRAM_ADDRESS - 1)'(1 << (UOP_INDEX - 1)));
  assign acc_over = (acc_beat || acc_zero) && acc_load_index >= SRAM_ADDRESS'(1 << ACC_INDEX);
  assign rule = uop_over || acc_over || over ? BAD_INDEX : LEGAL;

  always_ff @(posedge clk)
    if (rst) begin
      state <= IDLE;
      completed <= 0;
      finished <= 0;
    end else
      case (state)
        IDLE: if (accept) state <= transfers ? TRANSFER : is_loops ? START : DONE;
        TRANSFER: if (uop_loaded || acc_loaded) state <= DONE;
        START: state <= ISSUE;
        ISSUE: begin
          drain <= 4;
          if (!sequencing) state <= DRAIN;
        end
        DRAIN: begin
          drain <= drain - 1;
          if (drain == 1) state <= DONE;
        end
        default: begin
          state <= IDLE;
          completed <= completed + 1;
          if (transfer.opcode == FINISH) finished <= 1;
        end
      endcase
endmodule
