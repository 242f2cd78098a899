"""Worker process of one engine: prepares a model, then times runs on request.

Started by path, as `python -P engines.py JOB`, so that a peer's process imports nothing of Inlaid. Each line on standard input is a
number of seconds to run. The first line on standard output describes the preparation; each further line answers one input line. All
lines are JSON. Peers are imported on demand, since Inlaid does not depend on them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LEAST_RUNS = 3
"""Least number of runs in a round, however long they take."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Job:
    """The task of one engine. `label` is its name in reports; `names` are the model's input names; `inputs` is an .npz file with
    arrays in the order of `names`; `outputs` is an .npz file to write. `precision`, as for `inlaid.compile`, applies to every
    engine. `targets`, `dims` and `fusion` apply to Inlaid only."""

    label: str
    engine: str
    model: str
    names: tuple[str, ...]
    inputs: str
    outputs: str
    threads: int
    targets: tuple[str, ...] = ()
    dims: Mapping[str, Any] = field(default_factory=dict)
    fusion: bool = True
    precision: str = "model"

    def text(self) -> str:
        """Return the job as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Job:
        """Parse the result of `text`."""
        fields = json.loads(text)
        dims = {name: tuple(size) if isinstance(size, list) else size for name, size in fields["dims"].items()}
        return cls(**{**fields, "names": tuple(fields["names"]), "targets": tuple(fields["targets"]), "dims": dims})


@dataclass(frozen=True)
class Prepared:
    """A model ready to run. `settings` describes the engine's settings for the report. `arrays` converts the result of `run` to
    arrays, in the order of the model's outputs."""

    run: Callable[[], Any]
    version: str
    settings: str
    arrays: Callable[[Any], Sequence[Any]] = list


def prepare_inlaid(job: Job, inputs: Arrays) -> Prepared:
    """Load a package with Inlaid. A model is first compiled in another process, as a user would do, so that this process shows the
    memory for running only."""
    package = job.model
    if not package.endswith(".inlaid"):
        package = f"{job.outputs}.inlaid"
        command = [sys.executable, "-P", __file__, "compile", job.text(), package]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            raise ChildProcessError(process.stderr)
    import inlaid_runtime

    executable = inlaid_runtime.load(package)
    targets = ", ".join(dict.fromkeys(region.target for region in executable.regions)) or "nothing left to run"
    return Prepared(
        lambda: executable.run(inputs),
        importlib.metadata.version("inlaid"),
        targets + ("" if job.precision == "model" else f", {job.precision}") + ("" if job.fusion else ", fusion off"),
        lambda outputs: list(outputs.values()),
    )


def compile_package(job: Job, package: str) -> None:
    """Compile a model with Inlaid into a package, without the cache."""
    import inlaid

    executable = inlaid.compile(job.model, job.targets, dims=job.dims, fusion=job.fusion, cache=False, precision=job.precision)
    executable.save(package)


def prepare_onnxruntime(job: Job, inputs: Arrays) -> Prepared:
    """Load a model into ONNX Runtime's CPU provider."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = job.threads
    session = ort.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    settings = f"CPU provider, {job.threads} intra-op threads, spinning (its default), all graph optimizations (its default)"
    return Prepared(lambda: session.run(None, inputs), ort.__version__, settings)


def prepare_openvino(job: Job, inputs: Arrays) -> Prepared:
    """Compile a model with OpenVINO's CPU plugin, in float32 unless bfloat16 is requested."""
    import openvino

    core = openvino.Core()
    hint = "bf16" if job.precision == "bf16" else "f32"
    properties = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": job.threads}
    compiled = core.compile_model(core.read_model(job.model), "CPU", properties)
    request = compiled.create_infer_request()
    property_text = ", ".join(
        f"{name}={compiled.get_property(name)}" for name in ("INFERENCE_NUM_THREADS", "NUM_STREAMS", "PERFORMANCE_HINT")
    )
    return Prepared(
        lambda: request.infer(inputs, share_inputs=True, share_outputs=True),
        openvino.__version__.split("-")[0],
        f"CPU plugin, {property_text}, INFERENCE_PRECISION_HINT={hint}",
        lambda outputs: [np.array(value) for value in outputs.values()],
    )


def prepare_torch(job: Job, inputs: Arrays) -> Prepared:
    """Convert a model with onnx2torch and run it eagerly in PyTorch."""
    import torch
    from onnx2torch import convert

    torch.set_num_threads(job.threads)
    module = convert(job.model).eval()
    arguments = [torch.from_numpy(array) for array in inputs.values()]

    is_bf16 = job.precision == "bf16"

    def run() -> Any:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, is_bf16):
            return module(*arguments)

    def arrays(outputs: Any) -> list[Any]:
        return [
            (value.float() if value.is_floating_point() else value).numpy()
            for value in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))
        ]

    settings = f"eager by onnx2torch, {torch.get_num_threads()} threads, OpenMP's own spinning"
    return Prepared(run, torch.__version__, settings + (", autocast to bfloat16" if is_bf16 else ""), arrays)


def prepare_tvm(job: Job, inputs: Arrays) -> Prepared:
    """Compile a model with TVM's Relax frontend and default pipeline, untuned."""
    os.environ["TVM_NUM_THREADS"] = str(job.threads)  # read when the library is loaded
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    target = tvm.target.Target.from_device("cpu")
    module = from_onnx(onnx.load(job.model), keep_params_in_input=False)
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    arguments = [tvm.runtime.tensor(array) for array in inputs.values()]

    def arrays(outputs: Any) -> list[Any]:
        return [value.numpy() for value in ((outputs,) if hasattr(outputs, "numpy") else outputs)]

    settings = f"untuned, default pipeline, TVM_NUM_THREADS={job.threads}, target {target}"
    return Prepared(lambda: machine["main"](*arguments), tvm.__version__, settings, arrays)


def prepare_iree(job: Job, inputs: Arrays) -> Prepared:
    """Compile a model with IREE for this CPU and load it into the local-task runtime."""
    from iree import runtime
    from iree.compiler import tools as compiler

    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "model.mlir"
        command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", job.model, "-o", str(text)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        cpu = "--iree-llvmcpu-target-cpu=host"
        code = compiler.compile_file(str(text), input_type="onnx", target_backends=["llvm-cpu"], extra_args=[cpu])
    runtime.flags.parse_flags(f"--task_topology_group_count={job.threads}")
    context = runtime.SystemContext(config=runtime.Config("local-task"))
    loaded = runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(loaded)
    (name,) = (each for each in loaded.function_names if "$" not in each and not each.startswith("__"))
    function = context.modules[loaded.name][name]
    arguments = [runtime.asdevicearray(context.config.device, array) for array in inputs.values()]

    def arrays(outputs: Any) -> list[Any]:
        return [value.to_host() for value in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))]

    version = importlib.metadata.version("iree-base-runtime")
    return Prepared(lambda: function(*arguments), version, f"llvm-cpu, {cpu}, local-task with {job.threads} workers", arrays)


ENGINES: dict[str, Callable[[Job, Arrays], Prepared]] = {
    "inlaid": prepare_inlaid,
    "onnxruntime": prepare_onnxruntime,
    "openvino": prepare_openvino,
    "torch": prepare_torch,
    "tvm": prepare_tvm,
    "iree": prepare_iree,
}

PACKAGES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "torch": "torch torchvision onnx2torch",
    "tvm": "apache-tvm",
    "iree": "iree-base-compiler iree-base-runtime",
}
"""Distributions to install for each peer."""

MODULES = {
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "torch": ("torch", "onnx2torch"),
    "tvm": ("tvm",),
    "iree": ("iree.compiler", "iree.runtime"),
}
"""Modules that each peer imports."""

IN_BFLOAT16 = ("inlaid", "openvino", "torch")
"""Engines that can compute a float32 model in bfloat16."""


def time_runs(run: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Run for `seconds`, and at least `LEAST_RUNS` times. A first run is not timed: while this process was stopped, other processes
    have replaced the contents of the caches."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"median_ms": statistics.median(times) * 1e3, "runs": len(times)}


def prepare(job: Job) -> tuple[Prepared | None, dict[str, Any]]:
    """Prepare the model, run it once and write its outputs. Returns the model and its facts, or None and the reason."""
    with np.load(job.inputs) as file:
        inputs = {name: file[f"arr_{number}"] for number, name in enumerate(job.names)}
    if job.precision == "bf16" and job.engine not in IN_BFLOAT16:
        return None, {"failed": "cannot run a float32 model in bfloat16"}
    start = time.perf_counter()
    try:
        prepared = ENGINES[job.engine](job, inputs)
        seconds = time.perf_counter() - start
        np.savez(job.outputs, *prepared.arrays(prepared.run()))
    except ImportError as error:
        return None, {"failed": f"is not installed: {error}"}
    except Exception as error:
        return None, {"failed": _reason(error)}
    facts = {
        "version": prepared.version,
        "settings": prepared.settings,
        "prepare_s": seconds,
        "peak_mib": _peak_mib(),
        "compiler_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    return prepared, facts


def _peak_mib() -> float:
    """Return the peak resident memory of this process in MiB. `getrusage` would also count the process that forked this process."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _reason(error: Exception) -> str:
    """Return the last line of an error's message, which has the cause. Output of another process already names the exception."""
    from inlaid_runtime.errors import InlaidError

    text = error.on_command_line() if isinstance(error, InlaidError) else str(error)
    last = (text.strip().splitlines() or [""])[-1]
    return last if isinstance(error, ChildProcessError) else f"{type(error).__name__}: {last}"


def answer(run: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Time one round. Returns the measurements, or the reason why it failed."""
    try:
        return time_runs(run, seconds)
    except Exception as error:
        return {"failed": _reason(error)}


def main() -> None:
    """Serve one job, or compile. Output of the engines goes to standard error, so that it is not mistaken for an answer."""
    if sys.argv[1] == "compile":
        compile_package(Job.parse(sys.argv[2]), sys.argv[3])
        return
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepared, facts = prepare(Job.parse(sys.argv[1]))
    print(json.dumps(facts), file=answers)
    if prepared is not None:
        for line in sys.stdin:
            print(json.dumps(answer(prepared.run, float(line))), file=answers)


if __name__ == "__main__":
    main()
