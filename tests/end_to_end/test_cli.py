"""The command line: what every command prints, for readers and for programs, and what it says when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlaid.driver.deviation import Deviation
from inlaid_cli import main
from inlaid_cli.exit_codes import ExitCode
from inlaid_runtime import load
from inlaid_runtime.errors import PluginError
from inlaid_runtime.plugins.blame import blame

MISTAKES = (ExitCode.USAGE, ExitCode.INPUT, ExitCode.UNSUPPORTED)
W = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
RIGHT = np.maximum(X @ W, 0)


def model(batch: int | str = 2) -> onnx.ModelProto:
    """relu(x w), and what only the reference target computes: the length of a sequence."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Relu", ["product"], ["y"], name="act"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])
    graph = helper.make_graph(nodes, "small", [x], [y], [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and a package."""
    folder = tmp_path_factory.mktemp("cli")
    onnx.save(model(), folder / "small.onnx")
    onnx.save(model("batch"), folder / "open.onnx")
    np.save(folder / "x.npy", X)
    np.savez(folder / "all.npz", x=X)
    model_bytes = (folder / "small.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(model_bytes[: len(model_bytes) // 2])
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "text.onnx").write_text("this is no model")
    unknown = model()
    unknown.graph.node[1].op_type = "Frobnicate"
    onnx.save(unknown, folder / "unknown.onnx")
    with pytest.raises(SystemExit) as exit_info:
        main(["compile", str(folder / "small.onnx"), "-o", str(folder / "small.inlaid"), "--target", "x86:threads=1"])
    assert exit_info.value.code == 0
    package = (folder / "small.inlaid").read_bytes()
    (folder / "damaged.inlaid").write_bytes(package[:-40])
    flipped = bytearray(package)
    flipped[len(package) // 3] ^= 0x55
    (folder / "flipped.inlaid").write_bytes(bytes(flipped))
    return folder


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the folder; its exit code, standard output and standard error."""
    monkeypatch.chdir(folder)
    capsys.readouterr()

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(exit_info.value.code, int)
        return exit_info.value.code, out, err

    return command


def good(result: tuple[int, str, str]) -> str:
    """The output of a command that must succeed, and say nothing else."""
    code, out, err = result
    assert code == 0, err
    assert err == ""
    return out


def data(result: tuple[int, str, str]) -> Any:
    return json.loads(good(result))


def wrong(result: tuple[int, str, str], *words: str, expected: tuple[ExitCode, ...] = MISTAKES) -> None:
    """The command must fail in one line that has all the words, with an exit code of those for users' mistakes."""
    code, out, err = result
    assert code in expected and out == "", (code, out, err)
    assert err.startswith("inlaid: ") and err.count("\n") == 1 and "Traceback" not in err
    for word in words:
        assert word in err, f"{word!r} is not in {err!r}"


# --- what commands print ----------------------------------------------------------------------------------------------


def test_help(run: Run) -> None:
    out = good(run("--help"))
    for name in ("targets", "formats", "compile", "run", "bench", "export", "partition", "show", "cache"):
        assert f"\n  {name} " in out
        assert "Usage: inlaid " + name in good(run(name, "--help"))
    assert good(run("--version")).startswith("inlaid, version ")
    code, _, err = run()
    assert code == 2 and "Usage: inlaid" in err


def test_targets(run: Run) -> None:
    out = good(run("targets"))
    assert "reference" in out and "x86" in out and "ready: numpy" in out
    rows = {row["target"]: row for row in data(run("targets", "--json"))}
    assert rows["x86"]["available"] is True and rows["x86"]["plugin"] == "x86" and rows["x86"]["version"]


def test_compile(run: Run, folder: Path) -> None:
    out = good(run("compile", "small.onnx", "-o", "a.inlaid", "--target", "x86:threads=1"))
    assert out.startswith("a.inlaid: ") and "region0_x86 on x86:threads=1: 2 source nodes" in out
    facts = data(run("compile", "small.onnx", "--target", "x86:threads=1", "--json", "--timing", "--no-cache"))
    assert facts["package"] == "small.inlaid" and facts["bytes"] == (folder / "small.inlaid").stat().st_size
    assert facts["regions"] == [{"target": "x86:threads=1", "nodes": 2}]
    stages = [entry["name"] for entry in facts["stages"]]
    assert stages[:2] == ["import", "partition"] and stages[-1] == "save"
    assert {"simplify", "decompose", "cse", "fuse @region0_x86"} <= {entry["name"] for entry in facts["passes"]}
    out = good(run("compile", "small.onnx", "--target", "reference", "--timing", "--no-cache"))
    assert "graph passes" in out and "  generate region0_reference" in out
    # Equal models give equal bytes.
    good(run("compile", "small.onnx", "--target", "x86:threads=1"))
    assert (folder / "small.inlaid").read_bytes() == (folder / "a.inlaid").read_bytes()


def test_donated_inputs(run: Run, folder: Path) -> None:
    """An input whose buffer an output takes over, one of which no output makes use, and a name that no input has."""
    nodes = [onnx.helper.make_node("ScatterND", ["cache", "at", "row"], ["held"])]
    floats = onnx.TensorProto.FLOAT
    inputs = [
        onnx.helper.make_tensor_value_info("cache", floats, [6, 4]),
        onnx.helper.make_tensor_value_info("at", onnx.TensorProto.INT64, [1, 1]),
        onnx.helper.make_tensor_value_info("row", floats, [1, 4]),
    ]
    graph = onnx.helper.make_graph(nodes, "held", inputs, [onnx.helper.make_tensor_value_info("held", floats, [6, 4])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), folder / "held.onnx")
    for _ in range(2):  # the second time from the cache
        good(run("compile", "held.onnx", "--target", "x86:threads=1", "--donate", "cache"))
        assert load(folder / "held.inlaid").donated == ("cache",)
    good(run("compile", "held.onnx", "--target", "x86:threads=1"))
    assert load(folder / "held.inlaid").donated == ()
    code, _, err = run("compile", "held.onnx", "--target", "x86:threads=1", "--donate", "row")
    assert code == 0 and "no output reuses the buffer of 'row'" in err
    wrong(run("compile", "held.onnx", "--target", "x86:threads=1", "--donate", "cash"), "'cash'", "is 'cache' meant?")


def test_cache(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    where = str(tmp_path / "inlaid")
    empty = {"entries": 0, "bytes": 0}
    assert data(run("cache", "info", "--json"))["packages"] == {**empty, "limit": 1 << 32}

    def stages(*arguments: str) -> list[str]:
        facts = data(run("compile", "small.onnx", "-o", "c.inlaid", "--target", "x86:threads=1", "--json", "--timing", *arguments))
        return [entry["name"] for entry in facts["stages"]]

    assert "import" in stages("--no-cache") and data(run("cache", "info", "--json"))["objects"]["entries"] == 0
    assert "import" in stages()
    once = (folder / "c.inlaid").read_bytes()
    assert stages() == ["look up", "save"] and (folder / "c.inlaid").read_bytes() == once
    facts = data(run("cache", "info", "--json"))
    assert facts["folder"] == where and facts["reason"] == ""
    objects = facts["objects"]["entries"]  # the kernel, the entry, and what functions LLVM calls on this host
    assert objects >= 2 and [facts[name]["entries"] for name in ("models", "packages")] == [1, 1]
    assert facts["packages"]["bytes"] == len(once)
    assert good(run("cache", "info")).startswith(f"{where}\n  objects          {objects} entries ")
    assert good(run("cache", "clear")) == "" and data(run("cache", "info", "--json"))["models"]["entries"] == 0
    assert "import" in stages() and (folder / "c.inlaid").read_bytes() == once
    monkeypatch.setenv("INLAID_CACHE", "off")
    assert "import" in stages() and "keep" not in stages()
    assert good(run("cache", "info")) == "no cache: disabled by INLAID_CACHE\n"
    assert data(run("cache", "info", "--json"))["folder"] is None


@pytest.mark.parametrize("name", ["small.onnx", "a.inlaid"])
def test_run(run: Run, folder: Path, name: str) -> None:
    good(run("compile", "small.onnx", "-o", "a.inlaid"))
    for input_option in ("x=x.npy", "all.npz"):
        out = good(run("run", name, "--input", input_option, "-o", "out.npz"))
        assert out.startswith("y: float32[2, 4] [") and out.count("\n") == 1
        with np.load(folder / "out.npz") as results:
            np.testing.assert_allclose(results["y"], RIGHT, rtol=1e-6)
    facts = data(run("run", name, "--input", "x=x.npy", "--json"))
    y = facts["outputs"]["y"]
    assert list(facts) == ["outputs"] and y["shape"] == [2, 4] and y["dtype"] == "float32" and len(y["first"]) == 8
    assert run("run", name)[1] == run("run", name, "--seed", "0")[1] != run("run", name, "--seed", "1")[1]


def test_shadow(run: Run, folder: Path) -> None:
    message = "shadow: 1 region run compared with the reference target, all within tolerance\n"
    assert good(run("run", "small.onnx", "--input", "x=x.npy", "--shadow")).startswith(f"{message}y: ")
    code, out, err = run("run", "small.onnx", "--input", "x=x.npy", "--shadow", "--json")
    assert code == 0 and err == message and json.loads(out)
    good(run("compile", "small.onnx", "-o", "a.inlaid"))
    code, _, err = run("run", "a.inlaid", "--input", "x=x.npy", "--shadow")
    assert code == 2 and "no graph to compare" in err


def test_shadow_lists_what_differs(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    difference = Deviation("by 1, expected at most 0.5", 1.0, 0.25, (0, 3), 2, 8, 2.0)
    monkeypatch.setattr("inlaid.driver.shadow._compare", lambda *args: difference)
    code, _, err = run("run", "small.onnx", "--input", "x=x.npy", "--shadow")
    (line,) = [line for line in err.splitlines() if line.startswith("region0_x86 on x86")]
    assert code == ExitCode.CHECK_FAILED
    assert line.endswith(": at most 1 (0.25 of the greatest value) at [0, 3], 2 of 8 elements differ, beyond the tolerance")
    assert "by 1, expected at most 0.5" in err and "the inputs are in small.shadow.npz" in err
    with np.load(folder / "small.shadow.npz") as saved:
        assert saved.files


def test_placement(run: Run, folder: Path) -> None:
    pytest.importorskip("scipy", reason='needs SciPy: pip install "inlaid[cost]"')
    assert good(run("partition", "small.onnx", "--placement", "cost")) == good(run("partition", "small.onnx"))
    assert run("compile", "small.onnx", "--placement", "luck", "-o", "a.inlaid")[0] == 2


def test_element_types_that_numpy_lacks(run: Run, folder: Path) -> None:
    """They go to files and come back as their bits."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "half", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "half.onnx")
    once = run("run", "half.onnx", "-o", "neg.npz")[1]
    with np.load(folder / "neg.npz") as results:
        np.save(folder / "neg.npy", results["y"])
    assert "bfloat16[2] [-" in once
    assert run("run", "half.onnx", "--input", "x=neg.npy")[1] == once.replace("-", "")


def test_results_that_no_file_holds(run: Run, folder: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    items = helper.make_tensor_sequence_value_info("items", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("SequenceConstruct", ["x", "x"], ["items"])], "items", [x], [items])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "items.onnx")
    assert "items: [array(" in good(run("run", "items.onnx"))
    wrong(run("run", "items.onnx", "-o", "items.npz"), "output items is a sequence", "from Python")
    assert not (folder / "items.npz").exists()


def test_profile(run: Run, folder: Path) -> None:
    out = good(
        run("run", "small.onnx", "--target", "x86:threads=1", "--profile", "--trace", "trace.json", "--roofline", "page.html")
    )
    assert "whole run" in out and "product" in out
    facts = data(run("run", "small.onnx", "--target", "x86:threads=1", "--profile", "--json"))
    assert facts["outputs"]["y"]["shape"] == [2, 4] and 0 < facts["profile"]["rows"][0]["seconds"] < facts["profile"]["seconds"]
    assert "product" in [node for row in facts["profile"]["rows"] for node in row["nodes"]]
    assert "<circle" in (folder / "page.html").read_text()
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any(event["name"] == "region0_x86" for event in events)


def test_partition(run: Run) -> None:
    out = good(run("partition", "small.onnx", "--targets", "x86"))
    assert out.startswith("2 operators in 1 region\n") and "region0_x86 on x86: 2 operators, 24 bytes in, 32 bytes out" in out
    assert "relu at" not in out
    explained = good(run("partition", "small.onnx", "--targets", "x86,reference", "--explain"))
    assert explained.startswith(out) and "relu at small.onnx:act: x86" in explained
    facts = data(run("partition", "small.onnx", "--json"))
    assert [item["operator"] for item in facts["operators"]] == ["matmul", "relu"]
    assert facts["regions"][0]["bytes_out"] == 32
    assert good(run("partition", "small.onnx", "--target", "x86")) == out
    assert good(run("run", "small.onnx", "--targets", "x86,reference")).startswith("y: ")


def test_partition_is_locked(run: Run, folder: Path) -> None:
    lock = folder / "small.lock"
    first = good(run("partition", "small.onnx", "--target", "x86:threads=1", "--lock", "small.lock"))
    assert "otherwise" not in first and '["x86:threads=1", "", "matmul at product"]' in lock.read_text()
    assert (
        data(run("partition", "small.onnx", "--target", "x86:threads=1", "--lock", "small.lock", "--json"))["lock_differences"]
        == []
    )
    good(run("compile", "small.onnx", "-o", "locked.inlaid", "--target", "x86:threads=1", "--lock", "small.lock"))
    other = good(run("partition", "small.onnx", "--target", "reference", "--lock", "small.lock"))
    assert "- relu at act: x86:threads=1\n+ relu at act: reference" in other
    compile_command = (
        "compile",
        "small.onnx",
        "-o",
        "held.inlaid",
        "--targets",
        "x86,reference",
        "--lock",
        "small.lock",
        "--no-cache",
    )
    code, out, err = run(*compile_command)
    assert code == 0 and "region0_reference on reference" in out
    assert "- relu at act: reference\n+ relu at act: x86" in err
    lock.write_text("{}")
    wrong(run("compile", "small.onnx", "--lock", "small.lock", "--no-cache"), "this is not a valid lock")
    wrong(run("partition", "small.onnx", "--lock", "small.lock"), "this is not a valid lock")
    assert lock.read_text() == "{}"
    wrong(run("partition", "small.onnx", "--lock", "x", "--html", "x"), "need different files")


def test_partition_is_measured_and_drawn(run: Run, folder: Path) -> None:
    facts = data(run("partition", "small.onnx", "--target", "x86:threads=1", "--measure", "--html", "small.html", "--json"))
    assert facts["regions"][0]["measured"] > 0 and facts["regions"][0]["seconds"] > 0
    assert "matmul" in (folder / "small.html").read_text()
    wrong(run("partition", "small.onnx", "--html", "small.onnx"), "cannot write")
    placed = data(run("partition", "small.onnx", "--targets", "x86,reference", "--placement", "measured", "--json"))
    assert {item["target"] for item in placed["operators"]} == {"x86"}


def test_show(run: Run) -> None:
    out = good(run("show", "small.onnx"))
    assert out.startswith("def @main(%x: Tensor[(2, 3), float32]") and "const[float32, (3, 4)](...)" in out
    assert out.count("relu(") == 1
    assert "(...)" not in good(run("show", "small.onnx", "--weights", "hash"))
    assert "Tensor[(batch, 3), float32]" in good(run("show", "open.onnx"))
    assert "Tensor[(batch{1..8}, 3), float32]" in good(run("show", "open.onnx", "--dim", "batch=1:8"))
    for step in ("simplify", "graph_form:1", "decompose"):
        assert "matmul(" in good(run("show", "small.onnx", "--after", step))
    cut = good(run("show", "small.onnx", "--after", "partition", "--target", "x86:threads=1"))
    assert "@region0_x86(" in cut and '"target": "x86:threads=1"' in cut
    fused = good(run("show", "small.onnx", "--after", "fuse", "--target", "x86:threads=1"))
    assert '"primitive"' in fused and '"primitive"' not in cut
    assert good(run("show", "small.onnx", "--after", "peel_loops", "--target", "x86:threads=1")).startswith("program matmul_")


def test_show_lists_passes(run: Run) -> None:
    out = good(run("show", "small.onnx", "--passes", "--target", "x86:threads=1"))
    lines = [line.split() for line in out.splitlines()]
    titles = [line for line in out.splitlines() if not line.startswith(" ")]
    assert titles == ["graph", "regions for x86:threads=1", "kernels for x86:threads=1"]
    assert ["sink_transposes", "no", "change"] in lines and ["partition", "1", "->", "2", "functions"] in lines
    assert any(line[:6] == ["fuse", "1", "of", "1", "regions,", "6"] for line in lines)
    assert any(line[0] == "legalize" and line[-2:] == ["(plugin", "x86)"] for line in lines)
    rows = data(run("show", "small.onnx", "--passes", "--target", "x86:threads=1", "--json"))
    assert [row["name"] for row in rows] == [line[0] for line, text in zip(lines, out.splitlines(), strict=True) if text[0] == " "]
    assert {row["plugin"] for row in rows} == {"", "x86"}
    wrong(run("show", "small.onnx", "--passes", "--after", "fuse"), "mutually exclusive")
    wrong(run("show", "small.onnx", "--after", "magic", "--target", "x86:threads=1"), "choose from name_sizes", "legalize")


def test_symbolic_dimensions(run: Run, folder: Path) -> None:
    good(run("compile", "open.onnx", "-o", "open.inlaid"))
    good(run("run", "open.inlaid", "--input", "x=x.npy", "-o", "out.npz"))
    with np.load(folder / "out.npz") as results:
        np.testing.assert_allclose(results["y"], RIGHT, rtol=1e-6)
    assert "y: float32[1, 4]" in good(run("run", "open.inlaid"))
    assert "y: float32[5, 4]" in good(run("run", "open.inlaid", "--dim", "batch=5"))
    assert "y: float32[5, 4]" in good(run("run", "open.onnx", "--dim", "batch=5"))


def test_sizes_that_do_not_fit(run: Run, folder: Path) -> None:
    """Random inputs are as small as may be, which a window may not fit."""
    node = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "n"])
    graph = helper.make_graph([node], "pool", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "pool.onnx")
    good(run("compile", "pool.onnx", "-o", "pool.inlaid", "--target", "x86:threads=1"))
    words = ("must be >= 1, got -2 where n is 1 (operator max_pool, at pool.onnx:pool)", "; give inputs with --dim n=4")
    for model in ("pool.onnx", "pool.inlaid"):
        wrong(run("run", model), *words)
        assert "y: float32[1, 1, 1]" in good(run("run", model, "--dim", "n=4"))
    wrong(run("run", "pool.onnx", "--shadow"), *words)
    wrong(run("bench", "pool.onnx", "--target", "x86:threads=1"), *words)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_wrong_usage(run: Run) -> None:
    wrong(run("frobnicate"), "No such command", "frobnicate")
    wrong(run("compile"), "Missing argument", "MODEL")
    wrong(run("compile", "small.onnx", "--fast"), "No such option", "--fast")
    wrong(run("run", "small.onnx", "--dim", "batch"), "expected NAME=SIZE or NAME=LEAST:GREATEST, got 'batch'")
    for size in ("0", "0:0"):
        wrong(run("run", "open.onnx", "--dim", f"batch={size}"), "expected sizes >= 1 and LEAST <= GREATEST for dimension 'batch'")
    for size in ("-1", "²", "1:", ":1", "9" * 5000):
        wrong(run("run", "small.onnx", "--dim", f"batch={size}"), "expected NAME=SIZE")
    wrong(run("run", "small.onnx", "-o", "a", "--trace", "a"), "--output, --trace and --roofline need different files")
    wrong(run("run", "open.onnx", "--dim", "batch=8:1"), "LEAST <= GREATEST for dimension 'batch', got 8:1")
    wrong(run("run", "open.onnx", "--dim", f"batch={2**63}"), "for dimension 'batch', got")
    wrong(run("bench", "small.onnx", "--rounds", "0"), "--rounds")
    for command in (("run",), ("export", "-o", "a.so"), ("bench",)):
        wrong(run(*command, "small.inlaid", "--target", "x86"), "small.inlaid is already compiled", "--target")
        wrong(run(*command, "small.inlaid", "--dim", "batch=2"), "small.inlaid", "--dim")
    good(run("compile", "open.onnx", "-o", "open.inlaid"))
    wrong(run("run", "open.inlaid", "--dim", "batch=1:8"), "package open.inlaid", "give 'batch' one size")
    wrong(run("run", "open.onnx", "--dim", "batch=2", "--dim", "batch=3"), "dimension 'batch' is given twice")
    wrong(run("export", "open.onnx", "-o", "a.so"), "dimension batch has no upper bound", "--dim batch=1:64")
    for input_option in ("x=x.npy", "all.npz"):
        wrong(run("run", "small.onnx", "--input", "x=x.npy", "--input", input_option), "input x is given twice")


def test_wrong_models(run: Run) -> None:
    wrong(run("compile", "nowhere.onnx"), "nowhere.onnx", "does not exist")
    wrong(run("compile", "."), ". is a folder", "give a file in it: ")
    for name in ("cut.onnx", "empty.onnx", "text.onnx"):
        wrong(run("compile", name), name)
        wrong(run("show", name), name)
    wrong(run("compile", "unknown.onnx"), "Frobnicate", "act", "unknown.onnx")
    for command in ("compile", "show", "partition"):
        wrong(run(command, "small.inlaid"), "the compiled package small.inlaid", "inlaid run")


def test_wrong_packages(run: Run, folder: Path) -> None:
    for name in ("damaged.inlaid", "flipped.inlaid"):
        wrong(run("run", name), name)
    (folder / "fake.inlaid").write_text("no package")
    wrong(run("run", "fake.inlaid"), "fake.inlaid")


def test_wrong_targets(run: Run) -> None:
    wrong(run("compile", "small.onnx", "--target", "nope"), "no target 'nope' is installed", "installed:", "reference", "x86")
    wrong(run("compile", "small.onnx", "--target", "x68"), "no target 'x68' is installed (is 'x86' meant?)")
    wrong(run("conformance", "--target", "x68"), "no target 'x68' is installed (is 'x86' meant?)")
    wrong(run("compile", "small.onnx", "--target", "x86:speed=9"), "no option 'speed'", "options: threads, cpu")
    wrong(run("compile", "small.onnx", "--target", "x86:threads=many"), "threads", "must be an integer, got 'many'")
    wrong(run("compile", "small.onnx", "--target", "x86:cpu=z80"), "unknown cpu 'z80'", "x86-64-v3")
    for threads in ("-1", "1000000", "9" * 20):
        wrong(run("compile", "small.onnx", "--target", f"x86:threads={threads}"), threads, "must be 0 to 1024")
    wrong(run("compile", "small.onnx", "--target", "x86:threads=1,threads=2"), "option threads of target x86 is given twice")


def test_wrong_inputs(run: Run, folder: Path) -> None:
    np.save(folder / "tall.npy", np.zeros((7, 3), np.float32))
    np.save(folder / "ints.npy", np.zeros((2, 3), np.int64))
    np.save(folder / "pickled.npy", np.array([object()]), allow_pickle=True)
    (folder / "text.npy").write_text("not an array")
    wrong(run("run", "small.inlaid", "--input", "x=nowhere.npy"), "cannot read nowhere.npy", ".npz")
    wrong(run("run", "small.inlaid", "--input", "x=text.npy"), "cannot read text.npy")
    wrong(run("run", "small.inlaid", "--input", "x=pickled.npy"), "cannot read pickled.npy")
    wrong(run("run", "small.inlaid", "--input", "z=x.npy"), "no input 'z'", "x: float32[2, 3]")
    wrong(run("run", "small.inlaid", "--input", "x=tall.npy"), "x", "7")
    wrong(run("run", "small.inlaid", "--input", "x=ints.npy"), "x", "int64")
    wrong(run("run", "small.inlaid", "--input", "x.npy"), "x.npy holds one array", "NAME=FILE.npy")
    wrong(run("run", "small.inlaid", "--input", "x=all.npz"), "all.npz holds several arrays")


def test_inputs_larger_than_memory(run: Run, folder: Path) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**22, 2**20, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "huge", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "huge.onnx")
    wrong(run("run", "huge.onnx", "--target", "reference"), "cannot allocate a random array of shape (4194304, 1048576, 4)")
    wrong(run("run", "small.onnx", "--seed", "-5"), "--seed", "-5")


def test_wrong_outputs(run: Run) -> None:
    wrong(run("compile", "small.onnx", "-o", "nowhere/a.inlaid"), "nowhere")
    wrong(run("run", "small.inlaid", "-o", "nowhere/out.npz"), "nowhere/out.npz: No such file or directory")
    wrong(run("export", "small.onnx", "-o", "nowhere/libsmall.so"), "nowhere")


def test_outputs_that_would_destroy_something(run: Run, folder: Path) -> None:
    content = (folder / "small.onnx").read_bytes()
    (folder / "link.onnx").symlink_to("small.onnx")
    for command in ("compile", "export", "run"):
        for name in ("small.onnx", "./small.onnx", "link.onnx"):
            wrong(run(command, "small.onnx", "-o", name), f"cannot write {Path(name)}: it is an input of this command")
        wrong(run(command, "small.onnx", "-o", "."), "it is a folder")
        wrong(run(command, "small.onnx", "-o", "/dev/null"), "cannot write /dev/null")
    wrong(run("run", "small.onnx", "--trace", "small.onnx"), "an input of this command")
    wrong(run("run", "small.onnx", "--input", "x=x.npy", "-o", "x.npy"), "cannot write x.npy")
    wrong(run("export", "small.onnx", "-o", "small.h"), "the header's path small.h")
    assert (folder / "small.onnx").read_bytes() == content and Path("/dev/null").is_char_device()


def test_wrong_passes(run: Run) -> None:
    wrong(run("show", "small.onnx", "--after", "magic"), "unknown pass 'magic'", "graph_form, ", "partition")
    wrong(run("show", "small.onnx", "--after", "simplify:9"), "unknown pass 'simplify:9'")


def test_debug(run: Run) -> None:
    for arguments in (("--debug", "compile", "cut.onnx"), ("compile", "cut.onnx", "--debug")):
        code, out, err = run(*arguments)
        assert (code, out) == (ExitCode.INPUT, "") and "Traceback" in err and "cut.onnx" in err.splitlines()[-1]


def test_failures_of_our_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("inlaid.load", broken, raising=False)
    code, out, err = run("show", "small.onnx")
    assert (code, out) == (ExitCode.INTERNAL, "") and err.count("\n") == 1
    assert "internal error: KeyError: 'lost'" in err and "--debug" in err


def test_failures_of_a_plugin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plugin raises that is no error of Inlaid's has a place in its code, which --debug shows."""

    def broken(*_: object, **__: object) -> None:
        with blame("zap", "the code generator"):
            raise cause

    monkeypatch.setattr("inlaid.load", broken, raising=False)
    cause: Exception = AttributeError("'Step' object has no attribute 'op'")
    words = "the code generator failed: AttributeError: 'Step' object has no attribute 'op' (plugin zap)"
    wrong(run("show", "small.onnx"), f"{words}; --debug shows where", expected=(ExitCode.INTERNAL,))
    code, _, err = run("show", "small.onnx", "--debug")
    assert code == ExitCode.INTERNAL and "in broken" in err and err.endswith(f"inlaid: {words}\n")
    cause = PluginError("it gave nothing")
    assert "--debug" not in run("show", "small.onnx")[2]


def test_names_that_a_terminal_would_act_on(run: Run, folder: Path) -> None:
    red, shown = "\x1b[31mact\u202e", "\\x1b[31mact\\u202e"
    good_model = model()
    good_model.graph.node[1].name = red
    good_model.graph.node[1].output[0] = good_model.graph.output[0].name = red
    onnx.save(good_model, folder / "red.onnx")
    for command in (("run",), ("run", "--profile"), ("partition", "--explain"), ("show",), ("compile",)):
        out = good(run(*command, "red.onnx"))
        assert out.replace("\n", "").isprintable()
    assert shown in good(run("run", "red.onnx")) and shown in good(run("partition", "--explain", "red.onnx"))
    assert red in data(run("run", "red.onnx", "--json"))["outputs"]
    good_model.graph.node[1].op_type = "Frobnicate"
    onnx.save(good_model, folder / "red.onnx")
    result = run("run", "red.onnx")
    wrong(result, shown)
    assert result[2].replace("\n", "").isprintable()


# --- as processes -----------------------------------------------------------------------------------------------------


def process(folder: Path, *arguments: str, **facts: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from inlaid_cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False, **facts)


def test_processes(folder: Path) -> None:
    """Quiet in a pipe, one line for an error, and an end without complaint where nobody reads."""
    result = process(folder, "compile", "small.onnx", "-o", "p.inlaid")
    assert (result.returncode, result.stderr) == (0, "") and result.stdout.startswith("p.inlaid: ")
    failed = process(folder, "run", "damaged.inlaid")
    assert (failed.returncode, failed.stdout) == (ExitCode.INPUT, "") and failed.stderr.count("\n") == 1
    traced = process(folder, "run", "damaged.inlaid", "--debug")
    assert "Traceback" in traced.stderr and "PackageError" in traced.stderr
    shell = f"{sys.executable} -c 'from inlaid_cli import main; main()' show small.onnx --weights hash | head -c 10"
    piped = subprocess.run(shell, shell=True, capture_output=True, text=True, cwd=folder, timeout=300, check=False)
    assert piped.stdout == "def @main(" and "Traceback" not in piped.stderr


def test_progress_on_a_terminal(folder: Path) -> None:
    """A bar on standard error while a model compiles, gone at the end; none with --json. Standard output is as in a pipe."""
    import os
    import pty

    for more, shown in (((), True), (("--json",), False)):
        leader, follower = pty.openpty()
        command = [
            sys.executable,
            "-c",
            "from inlaid_cli import main; main()",
            "compile",
            "small.onnx",
            "-o",
            "q.inlaid",
            "--no-cache",
        ]
        terminal = {**os.environ, "TERM": "xterm-256color"}
        started = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=follower, cwd=folder, env=terminal)
        os.close(follower)
        output = b""
        while True:  # while it runs: a terminal that nobody reads takes a few kilobytes, and a slow compilation draws more
            try:
                part = os.read(leader, 4096)
            except OSError:  # The other end is closed: nothing more comes.
                break
            output += part
            if not part:
                break
        os.close(leader)
        out, _ = started.communicate(timeout=300)
        assert started.returncode == 0 and b"q.inlaid" in out and b"\x1b" not in out
        assert (b"import" in output or b"lower" in output or b"generate" in output) == shown, output


def test_broken_plugins(folder: Path, tmp_path: Path) -> None:
    """A plugin that cannot be imported is listed with its reason, and so is what could be installed instead."""
    dist = tmp_path / "inlaid_broken-1.2.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: inlaid-broken\nVersion: 1.2\n")
    (dist / "entry_points.txt").write_text("[inlaid.plugins]\nbroken = inlaid_broken\n")
    (tmp_path / "inlaid_broken.py").write_text("import no_such_vendor_library\n")
    import os

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = process(folder, "targets", "--json", env=environment)
    rows = {row["plugin"]: row for row in json.loads(result.stdout)}
    assert rows["broken"]["version"] == "1.2" and not rows["broken"]["available"]
    assert "no_such_vendor_library" in rows["broken"]["detail"] and rows["x86"]["available"]
    assert "no_such_vendor_library" in process(folder, "targets", env=environment).stdout
    failed = process(folder, "compile", "small.onnx", "--target", "broken", env=environment)
    assert failed.returncode == ExitCode.USAGE and failed.stderr.count("\n") == 1
    for word in ("no target 'broken'", "installed:", "reference", "x86", "unusable: broken", "no_such_vendor_library"):
        assert word in failed.stderr
    absent = process(folder, "compile", "small.onnx", "--target", "x86", env={**os.environ, "INLAID_DISABLED_PLUGINS": "x86"})
    assert (
        absent.returncode == ExitCode.USAGE
        and "; unset INLAID_DISABLED_PLUGINS" in absent.stderr
        and "pip install" not in absent.stderr
    )
