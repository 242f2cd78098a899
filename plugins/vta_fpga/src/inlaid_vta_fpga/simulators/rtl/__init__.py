"""The RTL core: SystemVerilog source for the default configuration, and simulation of the core."""
