// Types and constants of the VTA core for the default configuration: 1x16 blocks, int8 operands, int32 accumulators, 64-bit DRAM
// port. Field positions: apache/tvm-vta, hardware/xilinx/include/vta (2022-01); isa/encoding.py has the same table.
//
// UOP has 2048 elements, as in the Chisel core, of the 8192 that the encoding can address: programs keep micro-op kernels resident in
// fewer. MUL and LOAD of ACC_8BIT are not implemented, as in the Chisel core. All three are reported as faults.
package vta_types;
  localparam int BLOCK = 16;  // channels of an element
  localparam int UOP_INDEX = 11;  // index bits of each memory
  localparam int INP_INDEX = 11;
  localparam int WGT_INDEX = 10;
  localparam int ACC_INDEX = 11;
  localparam int INP_BITS = BLOCK * 8;  // bits of an element
  localparam int WGT_BITS = BLOCK * BLOCK * 8;
  localparam int ACC_BITS = BLOCK * 32;
  localparam int OUT_BITS = BLOCK * 8;
  localparam int BUS = 64;  // bits of a beat
  localparam int BURST = 256;  // longest burst, in beats; bursts stay within an aligned block of that size
  localparam int ADDRESS = 40;  // bits of a byte address: a 32-bit index of 256-byte elements
  localparam int SRAM_ADDRESS = 18;  // bits of an SRAM index during a transfer: overruns are seen before they wrap

  typedef enum logic [2:0] {LOAD, STORE, GEMM, FINISH, ALU} opcode_t;
  typedef enum logic [2:0] {UOP, WGT, INP, ACC, OUT, ACC_8BIT} memory_t;
  typedef enum logic [2:0] {MIN, MAX, ADD, SHR} alu_t;

  // LOAD and STORE.
  typedef struct packed {
    logic [3:0] x_pad_1;
    logic [3:0] x_pad_0;
    logic [3:0] y_pad_1;
    logic [3:0] y_pad_0;
    logic [15:0] x_stride;
    logic [15:0] x_size;
    logic [15:0] y_size;
    logic [5:0] unused;
    logic [31:0] dram_base;
    logic [15:0] sram_base;
    logic [2:0] memory;
    logic push_next;
    logic push_prev;
    logic pop_next;
    logic pop_prev;
    logic [2:0] opcode;
  } transfer_t;

  // GEMM and ALU. The ALU has its operation, use_imm and imm where GEMM has the factors of WGT.
  typedef struct packed {
    logic [9:0] wgt_factor_in;
    logic [9:0] wgt_factor_out;
    logic [10:0] src_factor_in;
    logic [10:0] src_factor_out;
    logic [10:0] dst_factor_in;
    logic [10:0] dst_factor_out;
    logic unused;
    logic [13:0] iter_in;
    logic [13:0] iter_out;
    logic [13:0] uop_end;
    logic [12:0] uop_begin;
    logic reset;
    logic push_next;
    logic push_prev;
    logic pop_next;
    logic pop_prev;
    logic [2:0] opcode;
  } loops_t;

  // Rules of an instruction stream that the core checks. The first seven concern an instruction's fields and are checked by fetch.
  typedef enum logic [3:0] {
    LEGAL,
    BAD_OPCODE,  // an opcode above 4
    BAD_MEMORY,  // LOAD of OUT, ACC_8BIT or an unknown memory; STORE of another memory than OUT, or with padding
    BAD_FLAGS,  // a LOAD of INP or WGT with a `prev` flag, or a STORE with a `next` flag
    BAD_UOP_LOAD,  // a LOAD of UOP with padding or several rows
    BAD_UOP_RANGE,  // a micro-op range that ends behind 2048
    BAD_ALU,  // an ALU operation that is not implemented
    BAD_EMPTY,  // no micro-ops, a loop count of 0, or rows of elements without rows
    BAD_INDEX,  // an element beyond its memory
    TOO_MANY_TOKENS  // more than 255 tokens in a queue
  } rule_t;

  // Beats of the next burst: what is left, up to the next aligned block of BURST beats.
  function automatic logic [8:0] burst(input logic [ADDRESS-1:0] address, input logic [21:0] left);
    logic [8:0] room;
    room = 9'(BURST) - {1'b0, address[10:3]};
    burst = left < {13'b0, room} ? left[8:0] : room;
  endfunction

  // The first rule that an instruction's fields break.
  function automatic rule_t rule_of(input logic [127:0] insn);
    transfer_t transfer;
    loops_t loops;
    logic load, loops_over, loops_empty;
    transfer = insn;
    loops = insn;
    load = transfer.memory == INP || transfer.memory == WGT;
    loops_over = loops.uop_end > 14'(1 << UOP_INDEX);
    loops_empty = {1'b0, loops.uop_begin} >= loops.uop_end || loops.iter_out == 0 || loops.iter_in == 0;
    rule_of = LEGAL;
    case (transfer.opcode)
      LOAD:
        if (transfer.memory > ACC) rule_of = BAD_MEMORY;
        else if (load && (transfer.pop_prev || transfer.push_prev)) rule_of = BAD_FLAGS;
        else if (transfer.x_size != 0 && transfer.y_size == 0) rule_of = BAD_EMPTY;
        else if (transfer.memory == UOP && transfer.x_size != 0 && (transfer.y_size != 1 || insn[127:112] != 0))
          rule_of = BAD_UOP_LOAD;
      STORE:
        if (transfer.memory != OUT || insn[127:112] != 0) rule_of = BAD_MEMORY;
        else if (transfer.pop_next || transfer.push_next) rule_of = BAD_FLAGS;
        else if (transfer.x_size != 0 && transfer.y_size == 0) rule_of = BAD_EMPTY;
      GEMM:
        if (loops_empty) rule_of = BAD_EMPTY;
        else if (loops_over) rule_of = BAD_UOP_RANGE;
      ALU:
        if (insn[110:108] > SHR) rule_of = BAD_ALU;
        else if (loops_empty) rule_of = BAD_EMPTY;
        else if (loops_over) rule_of = BAD_UOP_RANGE;
      FINISH: rule_of = LEGAL;
      default: rule_of = BAD_OPCODE;
    endcase
  endfunction
endpackage
