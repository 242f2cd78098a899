"""Runtime module: loads programs into the simulator."""

from inlaid.plugins import Loaded
from inlaid.runtime.host import HostRuntime
from inlaid_npu.isa import FORMAT, VERSION


class NpuRuntime(HostRuntime):
    def __init__(self):
        super().__init__(FORMAT, VERSION)

    def load(self, artifact, constants):
        from inlaid_npu.npu_simulator import Simulator

        return Loaded(Simulator(artifact.code, list(constants.values())))
