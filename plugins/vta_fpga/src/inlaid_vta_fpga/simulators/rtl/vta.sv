// Versatile Tensor Accelerator, default configuration: fetch, load, compute and store modules, their command queues, the four token
// queues between neighbours, and the DRAM ports: one for reads, shared, and one for writes.
//
// `start` (one cycle) launches `start_count` instructions at byte address `start_address`, after a reset. `done` rises with FINISH.
// `rule` differs from LEGAL for one cycle if the stream breaks a rule of vta_types; `rule_module` says in which module: 0 fetch, 1 load,
// 2 compute, 3 store. The core must be reset after that. `busy` is low when no module can proceed, which is a deadlock if `done` is
// low. completed_*: number of instructions that a module has completed; the next one runs or waits.
module vta
  import vta_types::*;
(
    input logic clk,
    input logic rst,
    input logic start,
    input logic [ADDRESS-1:0] start_address,
    input logic [31:0] start_count,
    output logic done,
    output logic busy,
    output rule_t rule,
    output logic [1:0] rule_module,
    output logic [31:0] dispatched,
    output logic [31:0] completed_load,
    output logic [31:0] completed_compute,
    output logic [31:0] completed_store,
    output logic gemm_issued,
    output logic reset_issued,
    output logic alu_issued,

    output logic read_valid,
    input logic read_ready,
    output logic [ADDRESS-1:0] read_address,
    output logic [8:0] read_beats,
    output logic [1:0] read_client,  // 0 fetch, 1 UOP, 2 INP and WGT, 3 ACC
    input logic return_valid,
    input logic return_last,
    input logic [1:0] return_client,
    input logic [BUS-1:0] return_data,

    output logic write_valid,
    input logic write_ready,
    output logic [ADDRESS-1:0] write_address,
    output logic [8:0] write_beats,
    output logic write_data_valid,
    output logic [BUS-1:0] write_data,
    input logic write_response  // after the last beat is in DRAM
);
  logic [3:0] command_valid, command_ready, data_valid;
  logic [3:0][ADDRESS-1:0] command_address;
  logic [3:0][8:0] command_beats;
  logic data_last;
  logic [BUS-1:0] data;

  vta_memory_port memory_port (
      .clk, .rst, .command_valid, .command_ready, .command_address, .command_beats, .data_valid, .data_last, .data,
      .read_valid, .read_ready, .read_address, .read_beats, .read_client,
      .return_valid, .return_last, .return_client, .return_data);

  // Fetch and command queues: 0 load, 1 compute, 2 store.
  logic [2:0] push, full, head_valid, pop, module_busy;
  logic [127:0] insn, load_head, compute_head, store_head;
  logic fetch_busy;
  rule_t fetch_rule, load_rule, compute_rule, store_rule;

  vta_fetch fetch (
      .clk, .rst, .start, .start_address, .start_count, .busy(fetch_busy), .rule(fetch_rule), .dispatched,
      .command_valid(command_valid[0]), .command_ready(command_ready[0]), .command_address(command_address[0]),
      .command_beats(command_beats[0]), .data_valid(data_valid[0]), .data_last, .data,
      .insn, .push_load(push[0]), .push_compute(push[1]), .push_store(push[2]),
      .load_full(full[0]), .compute_full(full[1]), .store_full(full[2]));

  vta_queue load_queue (
      .clk, .rst, .push(push[0]), .push_data(insn), .full(full[0]), .valid(head_valid[0]), .pop(pop[0]), .head(load_head));
  vta_queue compute_queue (
      .clk, .rst, .push(push[1]), .push_data(insn), .full(full[1]), .valid(head_valid[1]), .pop(pop[1]), .head(compute_head));
  vta_queue store_queue (
      .clk, .rst, .push(push[2]), .push_data(insn), .full(full[2]), .valid(head_valid[2]), .pop(pop[2]), .head(store_head));

  // Token queues: 0 load to compute, 1 compute to load, 2 compute to store, 3 store to compute.
  logic [3:0] token_push, token_pop, token, overflow;
  for (genvar index = 0; index < 4; index++) begin : tokens
    vta_tokens tokens (
        .clk, .rst, .push(token_push[index]), .pop(token_pop[index]), .available(token[index]), .overflow(overflow[index]));
  end

  logic operands_read, out_read;
  logic [INP_INDEX-1:0] inp_index;
  logic [WGT_INDEX-1:0] wgt_index;
  logic [ACC_INDEX-1:0] out_index;
  logic [INP_BITS-1:0] inp;
  logic [WGT_BITS-1:0] wgt;
  logic [OUT_BITS-1:0] out;

  vta_load load (
      .clk, .rst, .insn_valid(head_valid[0]), .insn_word(load_head), .insn_pop(pop[0]), .busy(module_busy[0]), .rule(load_rule),
      .completed(completed_load), .token_from_compute(token[1]), .pop_from_compute(token_pop[1]), .push_to_compute(token_push[0]),
      .command_valid(command_valid[2]), .command_ready(command_ready[2]), .command_address(command_address[2]),
      .command_beats(command_beats[2]), .data_valid(data_valid[2]), .data,
      .operands_read, .inp_index, .inp, .wgt_index, .wgt);

  vta_compute compute (
      .clk, .rst, .insn_valid(head_valid[1]), .insn_word(compute_head), .insn_pop(pop[1]), .busy(module_busy[1]),
      .rule(compute_rule), .completed(completed_compute), .finished(done), .gemm_issued, .reset_issued, .alu_issued,
      .token_from_load(token[0]), .token_from_store(token[3]), .pop_from_load(token_pop[0]), .pop_from_store(token_pop[3]),
      .push_to_load(token_push[1]), .push_to_store(token_push[2]),
      .command_valid({command_valid[3], command_valid[1]}), .command_ready({command_ready[3], command_ready[1]}),
      .command_address({command_address[3], command_address[1]}), .command_beats({command_beats[3], command_beats[1]}),
      .data_valid({data_valid[3], data_valid[1]}), .data,
      .operands_read, .inp_index, .inp, .wgt_index, .wgt, .out_read, .out_index, .out);

  vta_store store (
      .clk, .rst, .insn_valid(head_valid[2]), .insn_word(store_head), .insn_pop(pop[2]), .busy(module_busy[2]), .rule(store_rule),
      .completed(completed_store), .token_from_compute(token[2]), .pop_from_compute(token_pop[2]), .push_to_compute(token_push[3]),
      .out_read, .out_index, .out, .write_valid, .write_ready, .write_address, .write_beats, .write_data_valid, .write_data,
      .write_response);

  // A full queue blocks fetch. An instruction that has not reached the head of its queue yet is not counted as waiting.
  logic [2:0] pushed;
  always_ff @(posedge clk) pushed <= rst ? 0 : push;
  assign busy = start || fetch_busy || push != 0 || pushed != 0 || module_busy != 0;

  always_comb begin
    rule = LEGAL;
    rule_module = 0;
    if (fetch_rule != LEGAL) rule = fetch_rule;
    else if (load_rule != LEGAL || overflow[0]) begin
      rule = load_rule != LEGAL ? load_rule : TOO_MANY_TOKENS;
      rule_module = 1;
    end else if (compute_rule != LEGAL || overflow[1] || overflow[2]) begin
      rule = compute_rule != LEGAL ? compute_rule : TOO_MANY_TOKENS;
      rule_module = 2;
    end else if (store_rule != LEGAL || overflow[3]) begin
      rule = store_rule != LEGAL ? store_rule : TOO_MANY_TOKENS;
      rule_module = 3;
    end
  end
endmodule
