"""Cycles of the convolutions of ResNet-18 on VTA's timing simulator, and of the whole network.

    python benchmarks/vta.py             # prints a table
    python benchmarks/vta.py --write     # and writes docs/benchmarks-vta.md

Layers C2 to C11 as in the paper of VTA (Moreau et al., 2018) and in apache/tvm-vta: bias, shift and clip included, weights and data
in DRAM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid.graph.ir import Function
from inlaid_vta_fpga.compiler.legalise import Alu, Layer, Product, bias_blocks, constant_vector, pack_weights
from inlaid_vta_fpga.isa.instructions import AluOp
