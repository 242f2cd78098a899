"""Compiled packages found again: by all that they are made from, and by nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid import package_cache
from inlaid.api import Compiled, compile_file
from inlaid.package_cache import CachedPackage, recipe
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import Settings
from inlaid_runtime.cache import SWITCH, Hashes, caches, file_digest

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "model.onnx", WEIGHTS)
    return tmp_path


def write(path: Path, weights: np.ndarray[Any, Any], external: bool = False) -> None:
    """A product by constant weights, which lie in a file of their own where asked."""
    initializer = numpy_helper.from_array(weights, "w")
    if external:
        (path.parent / "weights.bin").write_bytes(weights.tobytes())
        initializer.ClearField("raw_data")
        initializer.data_location = TensorProto.EXTERNAL
        initializer.external_data.add(key="location", value="weights.bin")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [initializer],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)


def compiled(path: Path, **facts: Any) -> tuple[Compiled, bool]:
    """A file compiled, and whether it was found so."""
    stages: list[str] = []
    result = compile_file(path, **{"targets": ["reference"], "progress": lambda stage, *_: stages.append(stage), **facts})
    return result, "import" not in stages


def product(result: Compiled) -> np.ndarray[Any, Any]:
    (value,) = inlaid.Executable(result.package).run({"x": X}).values()
    assert isinstance(value, np.ndarray)
    return value


def test_a_second_time(folder: Path) -> None:
    first, before = compiled(folder / "model.onnx")
    second, again = compiled(folder / "model.onnx")
    assert (before, again) == (False, True) and first.file == second.file is not None
    np.testing.assert_array_equal(product(second), X @ WEIGHTS)
    for result, name in ((first, "a"), (second, "b"), (compiled(folder / "model.onnx", cache=False)[0], "c")):
        result.save(folder / name)
    assert len({(folder / name).read_bytes() for name in "abc"}) == 1


def test_a_copy_elsewhere(folder: Path) -> None:
    compiled(folder / "model.onnx")
    (folder / "other").mkdir()
    (folder / "other" / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    assert compiled(folder / "other" / "model.onnx")[1]


@pytest.mark.parametrize(
    "facts",
    [
        {"targets": ["x86"]},
        {"dims": {"n": 2}},
        {"dims": {"n": (1, 2)}},
        {"settings": Settings(fusion=False)},
        {"settings": Settings(precision="bf16")},
        {"settings": Settings(placement="cost")},
        {"targets": ["x86:threads=1"]},
        {"targets": ["x86:threads=1", "reference"]},
        {"targets": ["x86:threads=1,cpu=x86-64-v2"]},
        {"targets": ["reference", "x86:threads=1"]},
    ],
)
def test_what_else_is_asked_for_counts(folder: Path, facts: dict[str, Any]) -> None:
    compiled(folder / "model.onnx")
    assert not compiled(folder / "model.onnx", **facts)[1]
    assert compiled(folder / "model.onnx", **facts)[1] and compiled(folder / "model.onnx")[1]


def test_the_bytes_of_the_model_count(folder: Path) -> None:
    compiled(folder / "model.onnx")
    write(folder / "model.onnx", WEIGHTS + 1)
    result, is_cached = compiled(folder / "model.onnx")
    assert not is_cached
    np.testing.assert_array_equal(product(result), X @ (WEIGHTS + 1))


def test_files_beside_the_model_count(folder: Path) -> None:
    path = folder / "model.onnx"
    write(path, WEIGHTS, external=True)
    assert not compiled(path)[1] and compiled(path)[1]
    (folder / "weights.bin").write_bytes((WEIGHTS * 2).tobytes())
    result, is_cached = compiled(path)
    assert not is_cached
    np.testing.assert_array_equal(product(result), X @ (WEIGHTS * 2))
    (folder / "weights.bin").unlink()
    with pytest.raises(inlaid.InlaidError, match=r"weights\.bin"):
        compiled(path)


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(folder: Path) -> None:
    path = folder / "model.onnx"

    def change(stage: str, *_: int) -> None:
        if stage == "partition":
            write(path, WEIGHTS + 1)
            os.utime(path, (1, 1))

    compile_file(path, ["reference"], progress=change)
    result, is_cached = compiled(path)
    assert not is_cached
    np.testing.assert_array_equal(product(result), X @ (WEIGHTS + 1))


def test_damaged_packages_are_replaced(folder: Path) -> None:
    first, _ = compiled(folder / "model.onnx")
    assert first.file is not None
    content = first.file.read_bytes()
    weights, directory = content.index(WEIGHTS.tobytes()), content.rindex(b"PK\1\2")
    places = (
        bytes([content[offset] ^ 1]).join((content[:offset], content[offset + 1 :])) for offset in (200, weights, directory + 12)
    )
    for damage in (content[:-1], *places, b""):
        first.file.write_bytes(damage)
        result, is_cached = compiled(folder / "model.onnx")
        assert not is_cached and result.file == first.file and result.file.read_bytes() == content
        np.testing.assert_array_equal(product(result), X @ WEIGHTS)


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"{}", b'{"files": 3}', b'{"files": {}, "regions": [], "checksums": [[0, 0]], "weight_bytes": 0}']
)
def test_records_that_make_no_sense_are_ignored(folder: Path, record: bytes) -> None:
    compiled(folder / "model.onnx")
    options = {"dims": {}, **asdict(Settings())}
    cache_recipe = recipe(folder / "model.onnx", ["reference"], options, default_registry(), caches())
    assert cache_recipe is not None and cache_recipe.key is not None and caches().models.get(cache_recipe.key) is not None
    caches().models.put(cache_recipe.key, record)
    assert not compiled(folder / "model.onnx")[1] and compiled(folder / "model.onnx")[1]


def test_a_model_is_hashed_in_a_thread_if_no_package_can_be_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    monkeypatch.setattr(Hashes, "file", lambda self, path: threads.append(threading.current_thread()) or file_digest(path))
    compiled(folder / "model.onnx")
    assert compiled(folder / "model.onnx")[1]
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


def test_a_package_outlives_its_place_in_the_cache(folder: Path) -> None:
    compiled(folder / "model.onnx")
    result, is_cached = compiled(folder / "model.onnx")
    caches().packages.clear()
    assert is_cached and result.file is not None and not result.file.exists()
    np.testing.assert_array_equal(product(result), X @ WEIGHTS)
    result.save(folder / "saved.inlaid")
    (value,) = inlaid.runtime.load(folder / "saved.inlaid").run({"x": X}).values()
    np.testing.assert_array_equal(value, X @ WEIGHTS)


def test_a_package_that_another_process_takes_away_stays_usable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original_keep = package_cache.keep

    def keep_and_lose(*arguments: Any) -> CachedPackage | None:
        entry = original_keep(*arguments)
        caches().packages.clear()
        return entry

    monkeypatch.setattr(package_cache, "keep", keep_and_lose)
    result, is_cached = compiled(folder / "model.onnx")
    assert not is_cached and result.file is not None and not result.file.exists()
    np.testing.assert_array_equal(product(result), X @ WEIGHTS)
    assert not compiled(folder / "model.onnx")[1]


def test_facts_are_known_before_the_package_is_read(folder: Path) -> None:
    first, again = compiled(folder / "model.onnx")[0], compiled(folder / "model.onnx")[0]
    fresh, _ = compiled(folder / "model.onnx", cache=False)
    assert first.regions == again.regions == fresh.regions and [region.target for region in again.regions] == ["reference"]
    assert first.weight_bytes == again.weight_bytes == fresh.weight_bytes == again.package.weight_bytes == WEIGHTS.nbytes


def test_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not compiled(folder / "model.onnx", cache=False)[1]
    monkeypatch.setenv(SWITCH, "off")
    assert not compiled(folder / "model.onnx")[1] and not compiled(folder / "model.onnx")[1]
    assert not (folder / "cache" / "inlaid").exists()


def test_a_cache_that_cannot_be_written_does_no_harm(folder: Path) -> None:
    (folder / "cache" / "inlaid" / "v1").mkdir(parents=True, mode=0o700)
    (folder / "cache" / "inlaid").chmod(0o700)
    for name in ("models", "packages", "objects"):
        (folder / "cache" / "inlaid" / "v1" / name).write_bytes(b"in the way")
    result, is_cached = compiled(folder / "model.onnx", targets=["x86:threads=1"])
    assert not is_cached and result.file is None
    np.testing.assert_array_equal(product(result), X @ WEIGHTS)


def test_plugins_outside_of_files_are_not_cached(folder: Path) -> None:
    class Plugin:
        PLUGIN_API_VERSION = 3

    class Entry:
        name, value, group, dist = "made_up", "made_up", "inlaid.plugins", None

        def load(self) -> object:
            return Plugin()

    registry = PluginRegistry.discover([Entry()])  # type: ignore[list-item]
    assert registry.fingerprint is None and default_registry().fingerprint is not None
    assert recipe(folder / "model.onnx", [], {}, registry, caches()) is None


SOURCE_PACKAGES = (
    "inlaid",
    "inlaid_onnx",
    "inlaid_quantization",
    "inlaid_runtime",
    "inlaid_tflite",
    "inlaid_x86",
    "inlaid_x86_runtime",
)
TOOL_PACKAGES = ("inlaid_bench", "inlaid_cli", "inlaid_conformance")


@pytest.mark.parametrize("name", [*SOURCE_PACKAGES, *TOOL_PACKAGES])
def test_an_edit_counts_if_it_can_change_a_package(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a cached package covers core, runtime, shared packages, targets, formats and quantization, but no other tool."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    edited, tree = Path(spec.origin).parent, Hashes.tree
    registry = PluginRegistry.discover()
    before = registry.sources()
    assert before is not None and before == registry.sources()
    monkeypatch.setattr(Hashes, "tree", lambda self, path: tree(self, path) + ("edited" if path == edited else ""))
    assert (registry.sources() != before) == (name in SOURCE_PACKAGES)


def test_no_compiler_is_loaded_for_what_is_known(folder: Path) -> None:
    compiled(folder / "model.onnx", targets=["x86"])
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        class Barred:
            def find_spec(self, name, path=None, target=None):
                parts = name.split(".")
                compiler = ("graph", "tensor", "ops", "passes", "lowering", "partitioning", "driver", "schedules")
                if parts[0] == "onnx" or parts[-1] == "onnx" or parts[0] == "inlaid" and set(parts[1:2]) & set(compiler):
                    raise ImportError(f"{name} is barred")
        sys.meta_path.insert(0, Barred())
        import inlaid
        import numpy as np
        executable = inlaid.compile(sys.argv[1], ["x86"])
        executable.run({"x": np.zeros((2, 3), np.float32)})
        from inlaid_cli import main
        main(["compile", sys.argv[1], "-o", sys.argv[2]])
    """)
    command = """
        import sys
        from inlaid_cli import main
        try:
            main(["compile", sys.argv[1], "-o", sys.argv[2]])
        finally:
            heavy = {"numpy", "onnx", "rich", "llvmlite.binding"} & sys.modules.keys()
            assert not heavy, heavy
    """
    out = str(folder / "out.inlaid")
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(folder / "model.onnx"), out], check=True, timeout=120)
    assert (folder / "out.inlaid").stat().st_size > 0
    again = [sys.executable, "-c", textwrap.dedent(command), str(folder / "model.onnx"), out]
    assert "AssertionError" not in subprocess.run(again, check=True, timeout=120, capture_output=True, text=True).stderr


def test_many_processes_at_once(folder: Path) -> None:
    """All compile the same, and get the same."""
    code = "import sys; from inlaid_cli import main; main(sys.argv[1:])"
    arguments = ["compile", str(folder / "model.onnx"), "--target", "x86:threads=1", "-o"]
    processes = [
        subprocess.Popen([sys.executable, "-c", code, *arguments, str(folder / f"{number}.inlaid")], stdout=subprocess.DEVNULL)
        for number in range(3)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * 3
    assert len({(folder / f"{number}.inlaid").read_bytes() for number in range(3)}) == 1
    assert (caches().packages.usage().entries, caches().models.usage().entries) == (1, 1)
    assert compiled(folder / "model.onnx", targets=["x86:threads=1"])[1]
