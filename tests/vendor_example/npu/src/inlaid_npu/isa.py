"""The instruction format, little-endian: a header, a table of the tensors, then instructions of sixteen words.

An instruction names tensors by number, -1 for none, and holds integers; `FIELDS` says what its words are.
"""

import struct

FORMAT, VERSION = "npu-program", 1
HEADER = struct.Struct("<4s2I")  # MAGIC, how many tensors, how many instructions
TENSOR = struct.Struct("<BBHI4I")  # in STORAGES, in TYPES, rank, number or offset there, sizes
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
