"""The runtime stands alone: a process in which no compiler package, and neither LLVM nor onnx, can be imported runs a package."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.plugins.registry import default_registry
from inlaid_runtime.types import TensorType

BARRED = ("inlaid", "llvmlite", "onnx")

GUARD = f"""
import sys

class Barred:
    def find_spec(self, name, path=None, target=None):
        if any(name == barred or name.startswith(barred + ".") for barred in {BARRED}):
            raise ImportError(f"{{name}} is barred")

sys.meta_path.insert(0, Barred())
"""


def run(code: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", GUARD + textwrap.dedent(code), *arguments], check=True, timeout=120)


def test_the_runtime_imports_no_compiler():
    run("""
        import inlaid_runtime.execution
        import inlaid_runtime.execution.host
        import inlaid_runtime.memory
        import inlaid_runtime.execution.mapped
    """)


def test_a_region_on_a_plugin_of_the_test(chain, tmp_path):
    """A package whose one target is a plugin on the path, loaded where the compiler is barred."""
    chain().save(tmp_path / "m.inlaid")
    (tmp_path / "inlaid_lab_plugin.py").write_text(
        textwrap.dedent("""
            from inlaid_runtime.plugins import Loaded, RuntimeModule, RuntimeSpec, hookimpl
            PLUGIN_API_VERSION = 3

            class Kernel:
                def __init__(self, symbol):
                    self.symbol = symbol
                def invoke(self, inputs, outputs, workspace, dims):
                    outputs[0][...] = inputs[0] + 1 if self.symbol == "add" else inputs[0] * 2 * inputs[1]

            class Runtime(RuntimeModule):
                def check(self, artifact):
                    return None
                def load(self, artifact, constants):
                    return Loaded(Kernel(artifact.symbol))

            @hookimpl
            def inlaid_runtimes():
                return [RuntimeSpec("lab")]

            @hookimpl
            def inlaid_runtime(target):
                return Runtime()
        """)
    )
    run(
        """
        import importlib.metadata
        import numpy as np
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from inlaid_runtime.plugins.registry import RuntimeRegistry
        from inlaid_runtime import Executable
        from inlaid_runtime.execution.package import read_package
        registry = RuntimeRegistry.discover([importlib.metadata.EntryPoint("lab", "inlaid_lab_plugin", "inlaid.runtimes")])
        model = Executable(read_package(Path(sys.argv[1], "m.inlaid")), registry=registry)
        result = model.run({"x": np.ones((2, 3), np.float32)})["y"]
        assert result.tolist() == [[4, 8, 12]] * 2, result
        """,
        str(tmp_path),
    )


@pytest.mark.skipif("x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"')
def test_an_x86_package(tmp_path):
    from inlaid.driver import compile_module

    x = ir.var("x", TensorType(("n", 3), "float32"))
    body = ops.relu(ops.add(x, ir.constant(np.array([1, -2, 3], np.float32))))
    for target in ("x86:threads=1", "x86:threads=2"):
        compile_module(ir.Module({"main": ir.function([x], body)}), [target]).save(tmp_path / "m.inlaid")
        run(
            """
            import numpy as np
            import inlaid_runtime
            model = inlaid_runtime.load(sys.argv[1])
            for rows in (2, 20000):
                (result,) = model.run({"x": np.zeros((rows, 3), np.float32)}).values()
                assert result.tolist() == [[1, 0, 3]] * rows, result
            assert not any(name.split(".")[0] in ("llvmlite", "onnx") for name in sys.modules)
            """,
            str(tmp_path / "m.inlaid"),
        )
