"""Loads programs into the simulator."""

from inlay.runtime.host import HostRuntime
from inlay_npu.isa import FORMAT, VERSION


class NpuRuntime(HostRuntime):
    def __init__(self):
        super().__init__(FORMAT, VERSION)

    def load(self, artifact, constants):
        from inlay_npu.npu_simulator import Simulator

        return Simulator(artifact.code, list(constants.values()))
