"""The instruction set of VTA: core configuration, instructions, binary encoding, and assembler."""
