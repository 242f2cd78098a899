// Dependence token queue between two modules: a counter of up to 255 tokens. A pushed token is available in the next cycle.
module vta_tokens (
    input logic clk,
    input logic rst,
    input logic push,
    input logic pop,
    output logic available,
    output logic overflow
);
  logic [7:0] count;

  assign available = count != 0;
  assign overflow = push && !pop && count == 8'hff;

  always_ff @(posedge clk)
    if (rst) count <= 0;
    else if (push && !pop && !overflow) count <= count + 1;
    else if (pop && !push) count <= count - 1;
endmodule
