"""The page of `inlaid partition --html`, in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.partitioning.fakes import fake_candidates, taking

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.pattern import is_op, wildcard
from inlaid.partitioning import partition
from inlaid.partitioning.explain import explain
from inlaid.partitioning.page import page
from inlaid.plugins import OpRule
from inlaid_runtime.types import TensorType

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium")
HOSTILE = "</script><script>document.title='broken'</script>"


def random_model(operators: int) -> ir.Function:
    """A long model with branches, of operators that three targets share."""
    generator = np.random.default_rng(0)
    x = ir.var("x", TensorType((4, 8), "float32"))
    values: list[ir.Expr] = [x]
    for number in range(operators):
        span = ir.Span("m.onnx", f"/h.{number // 12}/act{number}")
        first = values[max(0, len(values) - 1 - int(generator.integers(0, 4)))]
        if number % 3 == 2:
            values.append(ops.add(values[-1], first, span=span))
        else:
            values.append((ops.relu, ops.tanh, ops.sigmoid)[int(generator.integers(0, 3))](values[-1], span=span))
    return ir.function([x], values[-1])


def make_page(function: ir.Function, title: str = "model") -> str:
    module = ir.Module({"main": function})
    candidates = fake_candidates({"a": taking("relu", "add"), "b": taking("tanh")})
    return page(explain(partition(module, candidates), candidates), title)


def page_data(text: str) -> dict[str, Any]:
    script_match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert script_match is not None
    data: dict[str, Any] = json.loads(script_match.group(1))
    return data


def run_script(folder: Path, text: str, script: str) -> dict[str, Any]:
    """What a script on the page leaves in `run_script`, in a browser."""
    assert BROWSER is not None
    path = folder / "page.html"
    probe = f"const told = {{}}; {script}; document.body.dataset.told = JSON.stringify(told);"
    path.write_text(text.replace("</html>", f"<script>{probe}</script></html>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,800", f"--user-data-dir={folder / 'profile'}"]
    command = [BROWSER, *options, "--dump-dom", path.as_uri()]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    result_match = re.search(r'data-told="([^"]*)"', process.stdout)
    assert result_match is not None, (process.stdout[-2000:], process.stderr[-2000:])
    result: dict[str, Any] = json.loads(html.unescape(result_match.group(1)))
    return result


def test_the_page_holds_the_whole_report() -> None:
    data = page_data(make_page(random_model(30)))
    assert data["targets"] == ["a", "b", "reference"] and len(data["nodes"]) == 30
    assert {node["name"] for node in data["nodes"]} == {"relu", "tanh", "sigmoid", "add"}
    for source, reader, path in data["edges"]:
        assert len(path) == data["nodes"][reader]["y"] - data["nodes"][source]["y"] - 1


def test_names_cannot_end_the_script() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    text = make_page(ir.function([x], ops.relu(x, span=ir.Span("", HOSTILE))), HOSTILE)
    assert HOSTILE not in text and page_data(text)["nodes"][0]["parts"][0]["node"] == HOSTILE


def test_the_page_needs_nothing_from_elsewhere() -> None:
    assert not re.search(r"(src|href)\s*=|@import|url\(|https?:", make_page(random_model(3)))


@in_browser
def test_operators_are_found_clicked_and_colored(tmp_path: Path) -> None:
    script = """
      fit([]); draw();
      const at = (x, y) => { const box = canvas.getBoundingClientRect(); return {clientX: box.left + x, clientY: box.top + y}; };
      const [x, y] = center(data.nodes[4]).map((value, axis) => value * scale + [shiftX, shiftY][axis]);
      canvas.setPointerCapture = () => {};
      canvas.dispatchEvent(new PointerEvent("pointerdown", at(x, y)));
      canvas.dispatchEvent(new PointerEvent("pointerup", at(x, y)));
      told.details = byId("details").textContent;
      const pixel = (x, y) => [...pen.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data].slice(0, 3);
      draw();
      told.pixel = pixel(x - scale * WIDE * .4, y);
      told.color = color(data.nodes[4].target);
      byId("search").value = "act7";
      byId("search").dispatchEvent(new Event("input"));
      told.found = byId("found").textContent;
      byId("search").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
      told.second = byId("details").textContent;
      const before = scale;
      canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -100, ...at(200, 200)}));
      told.zoomed = scale / before;
      byId("legend").children[0].click();
      told.pressed = byId("legend").children[0].getAttribute("aria-pressed");
      told.regions = byId("regions").querySelectorAll("button").length;
      byId("regions").querySelector("button").click();
      told.marked = marked.size;
      told.title = document.title;
    """
    text = make_page(random_model(24), HOSTILE)
    data = page_data(text)
    script_result = run_script(tmp_path, text, script)
    node = data["nodes"][4]
    (part,) = node["parts"]
    assert part["node"] in script_result["details"] and data["targets"][node["target"]] in script_result["details"]
    assert all(verdict in script_result["details"] for verdict in part["verdicts"])
    assert script_result["pixel"] == [int(script_result["color"][start : start + 2], 16) for start in (1, 3, 5)]
    assert script_result["found"] == "1 found" and "act7" in script_result["second"]
    assert script_result["zoomed"] > 1.1 and script_result["pressed"] == "false"
    assert script_result["regions"] == len(data["regions"]) and script_result["marked"] == data["regions"][0]["operators"]
    assert script_result["title"] == HOSTILE


def composed() -> str:
    """The page of a model in which one target takes `relu(neg(x)) + neg(x)` whole, between two operators of another."""
    x = ir.var("x", TensorType((4, 8), "float32"))
    first = ops.tanh(x, span=ir.Span("m.onnx", "/in"))
    turned = ops.neg(first, span=ir.Span("m.onnx", "/mid/turn"))
    total = ops.add(ops.relu(turned, span=ir.Span("m.onnx", "/mid/act")), turned, span=ir.Span("m.onnx", "/mid/sum"))
    module = ir.Module({"main": ir.function([x], ops.tanh(total, span=ir.Span("m.onnx", "/out")))})
    inner = is_op("neg")(wildcard().named("x")).named("turn")
    candidates = fake_candidates({"a": (OpRule(is_op("add")(is_op("relu")(inner), inner), "folded"),), "b": taking("tanh")})
    return page(explain(partition(module, candidates), candidates), "model")


def test_a_composite_is_one_node() -> None:
    data = page_data(composed())
    assert [node["name"] for node in data["nodes"]] == ["tanh", "folded", "tanh"]
    assert [(source, reader) for source, reader, _ in data["edges"]] == [(0, 1), (1, 2)]
    assert [part["operator"] for part in data["nodes"][1]["parts"]] == ["neg", "relu", "add"]
    assert [number for change in data["changes"] for number in change["nodes"] if number > 2] == []


@in_browser
def test_parts_of_a_composite_are_found_and_told(tmp_path: Path) -> None:
    script = """
      byId("search").value = "/mid/act";
      byId("search").dispatchEvent(new Event("input"));
      byId("search").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
      told.details = byId("details").textContent;
      told.parts = [...byId("details").querySelectorAll("h3")].map(item => item.textContent);
      told.legend = byId("legend").textContent;
    """
    script_result = run_script(tmp_path, composed(), script)
    assert script_result["details"].startswith("foldedcomposite3 operators") and "m.onnx:/mid/sum" in script_result["details"]
    assert script_result["parts"] == ["neg", "relu", "add"] and script_result["legend"] == "a (3)b (2)reference (0)"


@in_browser
def test_five_thousand_operators_are_drawn(tmp_path: Path) -> None:
    script = """
      const times = [];
      for (const factor of [1, .2, .05, .02]) {
        scale = factor;
        const begin = performance.now();
        draw();
        pen.getImageData(0, 0, 1, 1);
        times.push(performance.now() - begin);
      }
      told.slowest = Math.max(...times);
      told.nodes = data.nodes.length;
    """
    script_result = run_script(tmp_path, make_page(random_model(5000)), script)
    assert script_result["nodes"] == 5000
    assert script_result["slowest"] < 30_000, "milliseconds for a picture; a walk of all pairs takes minutes on any machine"
