"""The pages state the architectures, instructions and limits that the code has."""

import re
from pathlib import Path

import pytest

from inlaid.plugins import Phase, Target
from inlaid_cuda.capabilities import FACTS
from inlaid_cuda.nvrtc import INSTALL_12
from inlaid_cuda.options import ARCHITECTURES, DEFAULT, CudaOptions
from inlaid_cuda.plugin import inlaid_passes
from inlaid_cuda.tensor_cores.instructions import has_copies, has_wgmma, target_intrinsics
from inlaid_cuda.tensor_cores.products import PRODUCTS
from inlaid_cuda.tensor_cores.wgmma import COLUMNS

ROOT = Path(__file__).parents[3]
README, GPU = (" ".join((ROOT / path).read_text().split()) for path in ("plugins/cuda/README.md", "docs/gpu.md"))
PAGES = [ROOT / "README.md", ROOT / "plugins/cuda/README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = [line.split("|")[1:-1] for line in (ROOT / "plugins/cuda/README.md").read_text().splitlines() if line.startswith("|")]


def rows(heading):
    """The cells of each row of the README's table with this heading, without headings and rule."""
    start = next(number for number, row in enumerate(TABLES) if heading in map(str.strip, row))
    table = []
    for row in TABLES[start + 2 :]:
        if len(row) != len(TABLES[start]):
            break
        table.append([cell.strip() for cell in row])
    return table


def first(holds):
    """The first architecture whose options have a feature."""
    return next(arch for arch in ARCHITECTURES if holds(CudaOptions(arch, tf32=True)))


def loads_tiles(options):
    return any(item.name == "load_tiles" for item in inlaid_passes(Target("cuda", options), Phase.BEFORE_PEELING))


def test_architectures_and_their_shared_memory():
    named = []
    for archs, _, shared in rows("typical device"):
        names, sizes = re.findall(r"`(sm_\w+)`", archs), [int(size) << 10 for size in re.findall(r"(\d+) KiB", shared)]
        if not names:
            break
        named += names
        for name, size in zip(names, sizes * (len(names) // len(sizes)), strict=True):
            assert FACTS[name.rstrip("a")].shared == size, name
    assert sorted(named) == sorted(ARCHITECTURES)
    assert f"`{DEFAULT}` without a device" in README and INSTALL_12 in README


def test_operands_of_tensor_cores():
    listed = {}
    for operands, start, _, groups in rows("operands"):
        for name in re.findall(r"`(\w+)`", operands):
            listed[name] = start.strip("`")
            assert "wgmma" in groups
    assert listed.keys() == {item.left for item in PRODUCTS}
    for item in PRODUCTS:
        arch = first(lambda options, item=item: item.name in {intrinsic.name for intrinsic in target_intrinsics(options)})
        assert listed[item.left] == arch
    for name in ("float16", "bfloat16"):
        assert f"`{name}` (from {listed[name]})" in GPU
    assert (
        f"`int8` or `uint8` (from {listed['int8']})" in GPU
        and f"tf32, which rounds factors to 10 bits of mantissa, from {listed['float32']}" in GPU
    )


def test_instructions():
    copies = first(has_copies)
    assert f"From `{copies}` on, operands are copied to shared memory by `cp.async`" in README
    assert f"`cp.async` from {copies}" in GPU
    for able in (has_wgmma, loads_tiles):
        assert [arch for arch in ARCHITECTURES if able(CudaOptions(arch))] == ["sm_90a"]
    assert "`wgmma` is used for `sm_90a`" in README and f"with N of {min(COLUMNS)} to {max(COLUMNS)} columns" in README
    assert "including `sm_90` and `sm_100`, uses `mma.sync`" in README
    assert "For `wgmma`, tiles are loaded by TMA" in README
    assert "`wgmma` for large products on sm_90a, whose tiles are loaded by TMA" in GPU


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_page_denies_an_instruction(page):
    sentences = re.split(r"[.;:]\s", " ".join(page.read_text().split()))
    denied = re.compile(r"(TMA|wgmma|cp\.async|mma\.sync)`? (is|are) not used|(no|without) (TMA|`?wgmma)")
    assert not [sentence for sentence in sentences if denied.search(sentence)]
