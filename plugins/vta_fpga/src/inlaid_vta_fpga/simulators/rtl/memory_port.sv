// Read port to DRAM, shared by fetch, UOP, INP and WGT, and ACC in that priority. Each client has a one-deep command register; at most
// 16 bursts are outstanding, and DRAM serves them in order. One beat per cycle; a command takes one cycle to DRAM, a beat one cycle
// from DRAM to its client. Clients accept every beat.
module vta_memory_port
  import vta_types::*;
#(
    parameter int CLIENTS = 4
) (
    input logic clk,
    input logic rst,
    input logic [CLIENTS-1:0] command_valid,
    output logic [CLIENTS-1:0] command_ready,
    input logic [CLIENTS-1:0][ADDRESS-1:0] command_address,
    input logic [CLIENTS-1:0][8:0] command_beats,
    output logic [CLIENTS-1:0] data_valid,
    output logic data_last,
    output logic [BUS-1:0] data,

    output logic read_valid,
    input logic read_ready,
    output logic [ADDRESS-1:0] read_address,
    output logic [8:0] read_beats,
    output logic [1:0] read_client,
    input logic return_valid,
    input logic return_last,
    input logic [1:0] return_client,
    input logic [BUS-1:0] return_data
);
  logic [CLIENTS-1:0] held, granted;
  logic [CLIENTS-1:0][ADDRESS-1:0] held_address;
  logic [CLIENTS-1:0][8:0] held_beats;
  logic [4:0] outstanding;
  logic sent, returned;

  always_comb begin
    read_client = 0;
    for (int client = CLIENTS - 1; client >= 0; client--) if (held[client]) read_client = 2'(client);
    granted = 0;
    granted[read_client] = sent;
  end

  assign read_valid = held != 0 && outstanding < 16;
  assign read_address = held_address[read_client];
  assign read_beats = held_beats[read_client];
  assign sent = read_valid && read_ready;
  assign returned = return_valid && return_last;
  assign command_ready = ~held | granted;

  always_ff @(posedge clk)
    if (rst) begin
      held <= 0;
      outstanding <= 0;
      data_valid <= 0;
      data_last <= 0;
    end else begin
      for (int client = 0; client < CLIENTS; client++)
        if (command_valid[client] && command_ready[client]) begin
          held[client] <= 1;
          held_address[client] <= command_address[client];
          held_beats[client] <= command_beats[client];
        end else if (granted[client]) held[client] <= 0;
      outstanding <= outstanding + {4'b0, sent} - {4'b0, returned};
      for (int client = 0; client < CLIENTS; client++) data_valid[client] <= return_valid && return_client == 2'(client);
      data_last <= return_last;
      data <= return_data;
    end
endmodule
