"""The instruction set of VTA: configuration, instructions, binary encoding, assembler text."""
