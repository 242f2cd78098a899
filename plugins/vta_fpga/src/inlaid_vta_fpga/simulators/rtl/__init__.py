"""The RTL core: SystemVerilog for the default configuration, and its simulation."""
