"""The instruction format, little-endian: a header, a table of the tensors, then instructions of sixteen words.

The words of an instruction, listed in `FIELDS`, are numbers of tensors (-1 for none) and integers.
"""

import struct

FORMAT, VERSION = "npu-program", 1
HEADER = struct.Struct("<4s2I")  # MAGIC, number of tensors, number of instructions
TENSOR = struct.Struct("<BBHI4I")  # index into STORAGES, index into TYPES, rank, number or arena offset, sizes
INSTRUCTION = struct.Struct("<16i")
MAGIC = b"NPU1"
STORAGES = ("input", "output", "constant", "arena")
TYPES = ("int8", "int32", "float32")
OPCODES = ("conv", "matmul", "mean", "add", "max_pool", "reshape")
FIELDS = (
    "opcode",
    "y",
    "x",
    "w",
    "bias",
    "scale",
    "zero",
    "least",
    "greatest",
    "rows",
    "columns",
    "down",
    "right",
    "top",
    "left",
    "fill",
)
