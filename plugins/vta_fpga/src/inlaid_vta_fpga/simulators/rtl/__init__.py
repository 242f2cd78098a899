"""The RTL core: SystemVerilog of the default configuration, and its simulation."""
