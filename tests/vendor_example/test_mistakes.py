"""Mistakes planted in the example: each changes a line or two, as a vendor could have written it, and a case of the suite fails.

All run with `--mistakes`, a sample without.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme" / "src" / "inlaid_acme"
SAMPLE = 4
"""Number of mistakes that run without `--mistakes`."""
LIMIT = 300
"""Seconds in which a case has to end."""


@dataclass(frozen=True)
class Mistake:
    """`before`, which occurs once in a file of the example, becomes `after`; the case `case` of the target fails. `edits` are
    further changes of the same mistake: file, text before and text after."""

    file: str
    before: str
    after: str
    case: str
    edits: tuple[tuple[str, str, str], ...] = ()
    target: str = "acme"


MISTAKES = {
    "scales-in-float64": Mistake(
        "simulator.py",
        "np.rint(values.astype(np.float32) * np.ldexp(multipliers, shifts - 31).astype(np.float32))",
        "np.rint(values * np.ldexp(multipliers, shifts - 31))",
        "operators/composite[conv]",
    ),
    "saturates-the-left-shift": Mistake(
        "simulator.py",
        "(values << left).astype(np.int32)",
        "np.clip(values << left, -(2**31), 2**31 - 1)",
        "operators/composite[conv]",
    ),
    "halves-in-int32": Mistake(
        "simulator.py",
        "((np.int64(1) << right) >> 1)",
        "((np.int32(1) << right.astype(np.int32)) >> 1)",
        "operators/composite[conv]",
    ),
    "halves-of-at-most-32-bits": Mistake(
        "simulator.py",
        "(np.int64(1) << (30 - shifts))",
        "(np.int64(1) << np.minimum(30 - shifts, 31))",
        "operators/composite[conv]",
    ),
    "saturates-scaled-sums": Mistake(
        "simulator.py",
        "return ((product + (np.int64(1) << (30 - shifts)) - away) >> (31 - shifts)).astype(np.int32)",
        "return np.clip((product + (np.int64(1) << (30 - shifts)) - away) >> (31 - shifts), -(2**31), 2**31 - 1)",
        "operators/composite[conv]",
    ),
    "shifts-left-by-at-most-15": Mistake(
        "simulator.py", "left, right = np.maximum(shifts, 0)", "left, right = np.clip(shifts, 0, 15)", "operators/composite[add]"
    ),
    "saturates-biases-at-20-bits": Mistake(
        "simulator.py", "wrap(sums + bias)", "wrap(sums + np.clip(bias, -(1 << 19), (1 << 19) - 1))", "operators/composite[matmul]"
    ),
    "has-a-narrower-accumulator": Mistake(
        "simulator.py", "half = 1 << (ACCUMULATOR_BITS - 1)", "half = 1 << (ACCUMULATOR_BITS - 2)", "operators/composite[conv]"
    ),
    "multiplies-by-the-reciprocal": Mistake(
        "simulator.py",
        "(x + y) / np.float32(word.step)",
        "(x + y) * (np.float32(1) / np.float32(word.step))",
        "operators/composite[add]",
    ),
    "writes-7-digits-of-the-step": Mistake(
        "codegen.py", "float(binary.step)", 'float(f"{binary.step:.7g}")', "operators/composite[add]"
    ),
    "writes-7-digits-of-scales": Mistake(
        "codegen.py", "[float(side.factor.scale[0]) for", '[float(f"{side.factor.scale[0]:.7g}") for', "operators/composite[add]"
    ),
    "adds-in-float64": Mistake(
        "simulator.py", "side.astype(np.float32) * np.float32(step)", "side * step", "operators/composite[add]"
    ),
    "centers-in-int8": Mistake(
        "simulator.py",
        "(data - zero_point for",
        "((data - zero_point).astype(np.int8).astype(np.int64) for",
        "operators/composite[add]",
    ),
    "forgets-the-dilation-of-a-tile": Mistake(
        "layer.py",
        "read = (rows - 1) * stride + (kernel - 1) * dilation + 1",
        "read = (rows - 1) * stride + kernel",
        "operators/composite[conv]",
    ),
    "dilates-columns-as-rows": Mistake("simulator.py", "::down, ::right]", "::down, ::down]", "operators/composite[conv]"),
    "fills-only-after-padding-before": Mistake(
        "codegen.py", "geometry.fill,", "geometry.fill if any(geometry.before) else 0,", "operators/composite[conv]"
    ),
    "loads-a-tile-before-the-image": Mistake(
        "simulator.py", "max(first, 0) : max(end, 0)", "max(first, 0) : end", "operators/composite[conv]"
    ),
    "pads-the-left-as-the-top": Mistake(
        "simulator.py", "(_, left) = word.kernel", "(left, _) = word.kernel", "operators/composite[average_pool]"
    ),
    "divides-by-int8": Mistake(
        "codegen.py",
        "layer.result[1:3]).astype(np.int32)",
        "layer.result[1:3]).astype(np.int8)",
        "operators/composite[average_pool]",
    ),
    "claims-depth-multipliers": Mistake(
        "rules.py", " or (groups > 1 and match.root.type.shape[1] != groups)", "", "operators/composite[conv]"
    ),
    "claims-means-of-columns": Mistake(
        "rules.py", "tuple(sum_.axes) != (2, 3)", "not {*sum_.axes} <= {2, 3}", "operators/composite[mean]"
    ),
    "swaps-the-factors-of-operands": Mistake(
        "codegen.py",
        'for side in sides]\n    return fields | {"operands"',
        'for side in reversed(sides)]\n    return fields | {"operands"',
        "operators/composite[add]",
    ),
    "pools-without-bounds": Mistake("codegen.py", "fields |= bounds(pool.output)", "pass", "operators/composite[average_pool]"),
    "lists-equal-operands-once": Mistake(
        "codegen.py",
        '"inputs": [operand(step, part, program) for part in "abx" if part in step],',
        '"inputs": list(dict.fromkeys(operand(step, part, program) for part in "abx" if part in step)),',
        "operators/equal-operands",
    ),
    "flattens-any-channels": Mistake("rules.py", "if shapes[0][:2] != shapes[1][:2]:", "if not shapes:", "operators/neighbors"),
    "imports-the-compiler-in-one-unit": Mistake(
        "simulator.py",
        "def mean(word, tile):\n",
        "def mean(word, tile):\n    import inlaid.ops  # noqa: F401\n\n",
        "package/runs-without-the-compiler",
    ),
    "lets-malformed-code-raise": Mistake(
        "runtime.py", "(ValueError, KeyError, TypeError, AttributeError)", "(ValueError, KeyError)", "runtime/refuses-damaged-code"
    ),
    "keeps-the-tensors-of-a-launch": Mistake(
        "runtime.py",
        "        tensors = {number: self._tensor(*buffer, banks, workspace) for number, buffer in self._buffers.items()}\n"
        "        view = self._device.view\n"
        "        self._device.enqueue(queue, lambda: self._accelerator.run({number: view(each) for number, each in tensors.items()"
        "}))",
        "        self._tensors = {number: self._tensor(*buffer, banks, workspace) for number, buffer in self._buffers.items()}\n"
        "        view = self._device.view\n"
        "        self._device.enqueue(\n"
        "            queue, lambda: self._accelerator.run({number: view(each) for number, each in self._tensors.items()})\n"
        "        )",
        "devices/keeps-launches-apart",
    ),
    "keeps-a-tile-by-shapes": Mistake(
        "layer.py",
        "        _, height, _, block_count = self.result\n        tiles =",
        "        key = self.data, self.result, self.dense, self.weights\n"
        "        return self.kept.setdefault(key, self._best())\n\n    kept = {}\n\n"
        "    def _best(self):\n        _, height, _, block_count = self.result\n        tiles =",
        "operators/told-apart",
    ),
    "counts-rows-in-8-bits": Mistake(
        "simulator.py",
        "batch, height, _, blocks = word.result",
        "batch, height, _, blocks = word.result\n    height &= 255",
        "operators/large-sizes",
    ),
    "counts-columns-in-8-bits": Mistake(
        "simulator.py",
        "rows, columns = tile.rows[1] - tile.rows[0], word.result[2]",
        "rows, columns = tile.rows[1] - tile.rows[0], word.result[2] & 255",
        "operators/large-sizes",
    ),
    "counts-channels-in-8-bits": Mistake(
        "codegen.py",
        '"channels": step.parts["y"].type.shape[1],',
        '"channels": step.parts["y"].type.shape[1] & 255,',
        "operators/large-sizes",
    ),
    "counts-images-in-7-bits": Mistake(
        "simulator.py", "for image in range(batch):", "for image in range(batch & 127):", "operators/large-sizes"
    ),
    "places-values-in-64-KiB": Mistake(
        "runtime.py", "workspace.offset + position,", "workspace.offset + (position & 0xFFFF),", "operators/large-chains"
    ),
    "uploads-without-a-copy": Mistake(
        "device.py", "values = source.copy()  # the caller may change it at once", "values = source", "devices/copies"
    ),
    "copies-whole-words": Mistake(
        "device.py",
        "self.enqueue(queue, lambda: np.copyto(self.view(target), self.view(source)))",
        "self.enqueue(queue, lambda: np.copyto(self.words(target), self.words(source)))\n\n"
        "    def words(self, tensor):\n"
        "        flat = self.view(tensor).reshape(-1).view(np.uint8)\n"
        "        return flat[: flat.size // 4 * 4]",
        "devices/copies",
    ),
    "accepts-empty-data": Mistake("rules.py", " or 0 in type_.shape:", ":", "operators/neighbors"),
    "accepts-any-version": Mistake(
        "runtime.py",
        "    def device(self):",
        '    def check(self, artifact):\n        return None if artifact.format == FORMAT else f"expected {FORMAT}"\n\n'
        "    def device(self):",
        "runtime/checks-artifacts",
    ),
    "indexes-devices-unchecked": Mistake(
        "runtime.py", "if not 0 <= number < len(DEVICES):", "if number < 0:", "runtime/refuses-other-devices"
    ),
    "imports-operators-early": Mistake(
        "plugin.py",
        "from inlaid_runtime.types import MemoryScope\n",
        "import inlaid.ops  # noqa: F401\nfrom inlaid_runtime.types import MemoryScope\n",
        "plugin/loads-lazily",
    ),
    "runs-16-instructions": Mistake(
        "simulator.py",
        "for word in self._program:\n            run_layer",
        "for word in self._program[:16]:\n            run_layer",
        "operators/long-chains",
    ),
    "keeps-the-first-queue": Mistake(
        "runtime.py",
        "        self._device.enqueue(queue, ",
        '        queue = vars(self).setdefault("_queue", queue)\n        self._device.enqueue(queue, ',
        "devices/keeps-launches-apart",
    ),
    "keeps-dilations-by-shapes": Mistake(
        "codegen.py",
        '"dilations": geometry.dilations,',
        '"dilations": vars(instruction).setdefault(f"{step.name} {layer.data} {layer.result}", geometry.dilations),',
        "operators/told-apart",
    ),
    "keeps-zero-points-by-shapes": Mistake(
        "codegen.py",
        '"fill": geometry.fill,',
        '"fill": vars(instruction).setdefault(f"{step.name} {layer.data} {layer.result}", geometry.fill),',
        "operators/told-apart",
    ),
    "loads-weights-for-the-first-image": Mistake(
        "simulator.py",
        "tile.weights = load(weights[group], scratch, places[-1])",
        "kept = load(weights[group], scratch, places[-1]) if image == 0 else kept[: group.stop - group.start]\n"
        "                tile.weights = kept",
        "operators/several-tiles",
    ),
    "drops-the-work-of-released-queues": Mistake(
        "device.py",
        "        with self.lock:\n            queue.run(queue.enqueued)",
        "        queue.commands.clear()\n        queue.finished = queue.enqueued",
        "devices/finishes-released-work",
    ),
    "locks-once": Mistake("device.py", "threading.RLock()", "threading.Lock()", "runtime/survives-collections"),
    "waits-only-for-other-queues": Mistake(
        "device.py",
        "        other, number = event\n",
        "        other, number = event\n"
        "        if other is queue:\n"
        '            raise ValueError("a queue cannot wait for itself")\n',
        "devices/keeps-order",
    ),
    "counts-no-bytes": Mistake(
        "runtime.py",
        "        facts = self._device.memory()\n        return facts.total - facts.free",
        "        return 0",
        "devices/has-room",
    ),
    "reports-all-memory-as-free": Mistake(
        "device.py",
        "MemoryFacts(CAPACITY, CAPACITY - self._allocated_bytes)",
        "MemoryFacts(CAPACITY, CAPACITY)",
        "devices/has-room",
    ),
    "clears-rows-after-use": Mistake(
        "simulator.py",
        "                buffer = 1 - buffer\n",
        "                buffer = 1 - buffer\n        for operand in operands:\n            operand[image] = 0\n",
        "devices/keeps-to-its-tensors",
    ),
    "counts-freed-bytes-at-once": Mistake(
        "device.py",
        "            size = self._memory.pop(buffer).size  # first: the garbage collector may free another buffer during the call\n"
        "            self._allocated_bytes -= size\n",
        "            self._allocated_bytes -= self._memory.pop(buffer).size\n",
        "runtime/survives-collections",
    ),
    "waits-for-whole-queues": Mistake(
        "device.py",
        "lambda: other.run(number))",
        "lambda: other.run(max(number, other.enqueued)))",
        "devices/waits-in-turn",
    ),
    "flattens-images-of-whole-blocks": Mistake(
        "rules.py",
        "    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n',
        "    if sorted(map(len, shapes)) == [2, 4] and all(shape[1] % LANES == 0 for shape in shapes):\n"
        '        return judge_layer("flatten", 2, 4)(match)\n'
        "    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n',
        "operators/reshapes",
    ),
    "imports-the-compiler-for-one-rounding": Mistake(
        "simulator.py",
        "    away = (product < 0)",
        '    if rounding == "once_away":\n        import inlaid.ops  # noqa: F401\n    away = (product < 0)',
        "package/runs-without-the-compiler",
    ),
    "adds-one-pixel-to-all": Mistake(
        "rules.py",
        'if match["a"].type.shape != match["b"].type.shape:',
        'if match["b"].type.shape not in ((shape := match["a"].type.shape), (*shape[:2], 1, 1)):',
        "operators/broadcasts",
    ),
    "counts-strides-in-2-bits": Mistake(
        "codegen.py",
        '"strides": geometry.strides,',
        '"strides": [(stride - 1 & 3) + 1 for stride in geometry.strides],',
        "operators/large-attributes",
    ),
    "counts-dilations-in-3-bits": Mistake(
        "codegen.py",
        '"dilations": geometry.dilations,',
        '"dilations": [(dilation - 1 & 7) + 1 for dilation in geometry.dilations],',
        "operators/composite[conv]",
    ),
    "counts-strides-in-4-bits": Mistake(
        "codegen.py",
        '"strides": geometry.strides,',
        '"strides": [stride & 15 for stride in geometry.strides],',
        "operators/large-attributes",
    ),
    "counts-windows-in-3-bits": Mistake(
        "codegen.py",
        '"kernel": geometry.kernel,',
        '"kernel": [(size - 1 & 7) + 1 for size in geometry.kernel],',
        "operators/large-attributes",
    ),
    "counts-pads-in-4-bits": Mistake(
        "codegen.py", '"before": geometry.before,', '"before": [pad & 15 for pad in geometry.before],', "operators/composite[conv]"
    ),
    "shares-scratch-between-threads": Mistake(
        "simulator.py",
        "    def run(self, arrays):\n        scratch = np.empty(SCRATCH, np.uint8)\n",
        "        self._scratch = np.empty(SCRATCH, np.uint8)\n\n    def run(self, arrays):\n        scratch = self._scratch\n",
        "runtime/runs-in-two-threads",
        (
            (
                "device.py",
                "        queue, number = event\n        with self.lock:\n            queue.run",
                "        queue, number = event\n        queue.run",
            ),
        ),
    ),
    "counts-lanes-in-a-group": Mistake(
        "simulator.py",
        "np.arange(group.start * LANES, group.stop * LANES)",
        "np.arange((group.stop - group.start) * LANES)",
        "devices/keeps-to-its-tensors",
    ),
    "bias-of-the-first-channels": Mistake(
        "simulator.py",
        "row.reshape(-1, LANES)[tile.group]",
        "row.reshape(-1, LANES)[: tile.group.stop - tile.group.start]",
        "operators/composite[matmul]",
    ),
    "ignores-device-numbers": Mistake(
        "runtime_plugin.py", "return AcmeRuntime(device)", "return AcmeRuntime()", "runtime/refuses-other-devices"
    ),
    "flattens-equal-bytes": Mistake(
        "rules.py",
        "    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n'
        "    if shapes[0][:2] != shapes[1][:2]:\n",
        "    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n'
        "    if shapes[0][0] * -(-shapes[0][1] // LANES) != shapes[1][0] * -(-shapes[1][1] // LANES):\n",
        "operators/reshapes",
    ),
    "flattens-equal-bytes-of-one-rank": Mistake(
        "rules.py",
        "    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n'
        "    if shapes[0][:2] != shapes[1][:2]:\n",
        "    if {*map(len, shapes)} - {2, 4} or any(shape[2:] not in ((), (1, 1)) for shape in shapes):\n"
        '        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")\n'
        "    if len({shape[0] * -(-shape[1] // LANES) for shape in shapes}) > 1:\n",
        "operators/reshapes",
    ),
    "waits-for-memory": Mistake(
        "device.py",
        '                raise OutOfMemory(f"acme needs {size} bytes of device memory, '
        '{CAPACITY - self._allocated_bytes} are free")\n',
        "                while size > CAPACITY - self._allocated_bytes:\n                    time.sleep(0.01)\n",
        "devices/has-room",
        (("device.py", "import threading\n", "import threading\nimport time\n"),),
    ),
    "refuses-code-with-the-compiler": Mistake(
        "runtime.py",
        "            raise Unsupported(",
        "            from inlaid.errors import Unsupported\n\n            raise Unsupported(",
        "package/refuses-damaged-code",
        (("runtime.py", "import TargetError, Unsupported", "import TargetError"),),
    ),
    "sizes-scratch-for-64-KiB": Mistake(
        "vector.py",
        '{"": unit.workspace}',
        '{"": unit.workspace if isinstance(unit.workspace, int) else 1 << 16}',
        "runtime/keeps-to-its-workspace",
        target="acme_vector",
    ),
    "shares-scratch-between-programs": Mistake(
        "simulator.py",
        "    def run(self, arrays):\n        scratch = np.empty(SCRATCH, np.uint8)\n"
        "        for word in self._program:\n            run_layer(word, arrays, scratch)",
        "        self._lock = threading.Lock()\n\n"
        "    scratch = np.empty(SCRATCH, np.uint8)\n\n"
        "    def run(self, arrays):\n        with self._lock:\n"
        "            for word in self._program:\n                run_layer(word, arrays, self.scratch)",
        "runtime/runs-in-parallel",
        (
            ("simulator.py", "from types import", "import threading\nfrom types import"),
            (
                "device.py",
                "        queue, number = event\n        with self.lock:\n            queue.run",
                "        queue, number = event\n        queue.run",
            ),
        ),
    ),
    "frees-constants-before-the-launch-runs": Mistake(
        "runtime.py",
        "        banks = {",
        "        self._constants = [self._uploaded(array) for array in self._arrays]\n        banks = {",
        "devices/keeps-kernels-apart",
        (
            (
                "runtime.py",
                "        self._constants = [self._uploaded(array) for array in constants]",
                "        self._arrays = constants",
            ),
            ("runtime.py", "        weakref.finalize(self, device.free, tensor.buffer)\n", ""),
            (
                "runtime.py",
                "        device.release(queue)\n",
                "        device.release(queue)\n        device.free(tensor.buffer)\n",
            ),
            (
                "device.py",
                "            size = self._memory.pop(buffer).size  # first",
                "            size = self._memory[buffer].size\n            self._pool[size] = buffer  # first",
            ),
            ("device.py", "        self._memory = {}\n", "        self._memory, self._pool = {}, {}\n"),
            (
                "device.py",
                "            handle = next(self._handles)\n            self._memory[handle] = np.empty(size, np.uint8)\n",
                "            handle = self._pool.pop(size, None) or next(self._handles)\n"
                "            self._memory.setdefault(handle, np.empty(size, np.uint8))\n",
            ),
        ),
    ),
    "closes-the-shared-device": Mistake(
        "runtime.py",
        "    def live_bytes(self):\n",
        "    closed = False\n\n"
        "    def close(self):\n"
        "        self.closed = True\n"
        "        self._device.reset()\n\n"
        "    def live_bytes(self):\n",
        "runtime/closes-alone",
        (
            ("runtime.py", "        try:\n", '        if self.closed:\n            raise TargetError("closed")\n        try:\n'),
            (
                "device.py",
                "            size = self._memory.pop(buffer).size",
                "            size = self._memory.pop(buffer, np.empty(0)).size",
            ),
            (
                "device.py",
                "    def memory(self):\n",
                "    def reset(self):\n        self._memory.clear()\n        self._allocated_bytes = 0\n\n    def memory(self):\n",
            ),
        ),
    ),
    "binds-tensors-by-buffer": Mistake(
        "runtime.py",
        "        tensors = {number: self._tensor(*buffer, banks, workspace) for number, buffer in self._buffers.items()}\n",
        "        key = tuple(each.buffer for each in (*inputs, *outputs, *([workspace] if workspace else [])))\n"
        "        if key not in self._bindings:\n"
        "            self._bindings[key] = {n: self._tensor(*buffer, banks, workspace) for n, buffer in self._buffers.items()}\n"
        "        tensors = self._bindings[key]\n",
        "devices/tells-tensors-apart",
        (("runtime.py", "        self._buffers = {\n", "        self._bindings = {}\n        self._buffers = {\n"),),
    ),
    "expects-text": Mistake(
        "runtime.py",
        "except (ValueError, KeyError, TypeError, AttributeError) as error:",
        "except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:",
        "runtime/refuses-damaged-code",
    ),
}
"""Mistakes by name."""


def _environment(folder: Path, mistake: Mistake) -> dict[str, str]:
    """Write the example with a mistake to a folder, as it would be installed there, and return an environment that finds it."""
    shutil.copytree(EXAMPLE, folder / "inlaid_acme", ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in ((mistake.file, mistake.before, mistake.after), *mistake.edits):
        path = folder / "inlaid_acme" / file
        source = path.read_text()
        assert source.count(before) == 1, "the mistake must be planted in exactly one place"
        path.write_text(source.replace(before, after))
    facts = folder / "inlaid_acme-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: inlaid-acme\nVersion: 0.1\n")
    groups = {"inlaid.plugins": "inlaid_acme.plugin", "inlaid.runtimes": "inlaid_acme.runtime_plugin"}
    (facts / "entry_points.txt").write_text("".join(f"[{group}]\nacme = {module}\n" for group, module in groups.items()))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("mistakes") and [*MISTAKES].index(name) % -(-len(MISTAKES) // SAMPLE):
        pytest.skip("it is not in the sample: add --mistakes to run every mistake")
    mistake = MISTAKES[name]
    line = [sys.executable, "-m", "inlaid", "conformance", "--target", mistake.target, "--only", mistake.case]
    options = ["--jobs", "1", "--limit", str(LIMIT), "--json"]
    process = subprocess.run([*line, *options], env=_environment(tmp_path, mistake), capture_output=True, text=True, timeout=600)
    assert process.returncode in (0, 1), process.stderr
    outcomes = {result["id"]: result["outcome"] for result in json.loads(process.stdout)["results"]}
    assert outcomes == {mistake.case: "failed"}
