"""Run the conformance suite of target opencl on OpenCL drivers for CPUs, and write the results as a page.

    python benchmarks/opencl_drivers.py [--install] [--drivers pocl intel rusticl] [--kinds native gpu] [--only PREFIX ...]
        [--jobs N] [--write docs/opencl-drivers.md]

Each driver runs in processes of its own, since the loader of drivers reads its environment once. The whole suite takes about 10
minutes per driver and kind on two cores; --only restricts it to cases whose ids start with a prefix. Reports are kept in
build/opencl-drivers/, and the page has a row for each of them, so that a call may run a part of the drivers again.

--install installs Intel's CPU runtime (0.8 GB) there. A driver that is missing is left out, with the command that installs it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "opencl-drivers"
INTEL = ("intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0", "tbb==2023.2.0")
INTEL_COMMAND = ("pip", "install", "--no-deps", "--ignore-installed", "--prefix", "build/opencl-drivers/intel", *INTEL)
KINDS = ("native", "gpu")
LONGEST_REASON = 160
"""Maximum characters of the reason of a failed case on the page."""


@dataclass(frozen=True)
class Driver:
    """An OpenCL driver that runs kernels on the CPU.

    title: its name on the page. libraries: glob patterns of its library, each with its folder. install: the command to install it.
    variables: environment that it needs. options: further options of the target for kinds other than `native`. conformance:
    whether the whole suite runs on it.
    """

    title: str
    libraries: tuple[tuple[Path, str], ...]
    install: str
    variables: Mapping[str, str]
    options: str = ""
    conformance: bool = True

    def library(self) -> Path | None:
        """Return the path of the library; None if the driver is not installed."""
        return next((path for folder, pattern in self.libraries for path in sorted(folder.glob(pattern))), None)

    def environment(self, folder: Path) -> dict[str, str] | None:
        """Return the environment of a process that sees this driver alone; None if it is not installed.

        Writes a file, which names the library, to `folder`."""
        library = self.library()
        if library is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        vendors = folder / f"{library.stem}.icd"
        vendors.write_text(f"{library}\n")
        return {**os.environ, **self.variables, "OCL_ICD_VENDORS": str(vendors)}


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()


SYSTEM = Path("/usr/lib")
DRIVERS = {
    "pocl": Driver("PoCL", ((_package_folder("pyopencl"), ".libs/libpocl-*.so"),), "pip install pocl-binary-distribution==3.0", {}),
    "intel": Driver("Intel's CPU runtime", ((FOLDER, "intel/lib/libintelocl.so"),), " ".join(INTEL_COMMAND), {}),
    "rusticl": Driver(
        "rusticl on llvmpipe",
        ((SYSTEM, "*/libRusticlOpenCL.so.1"), (SYSTEM, "libRusticlOpenCL.so.1")),
        "apt-get install mesa-opencl-icd",
        {"RUSTICL_ENABLE": "llvmpipe"},
        ",float64=false",
    ),
    "oclgrind": Driver(
        "Oclgrind",
        ((SYSTEM, "oclgrind/liboclgrind-rt-icd.so"), (SYSTEM, "*/oclgrind/liboclgrind-rt-icd.so")),
        "apt-get install oclgrind",
        {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1"},
        conformance=False,
    ),
}


def run_suite(name: str, kind: str, only: Sequence[str], jobs: int) -> None:
    """Run the conformance suite on a driver for a kind of device, and keep its report. Prints what to install if it is missing."""
    driver = DRIVERS[name]
    environment = driver.environment(FOLDER)
    if environment is None:
        print(f"{driver.title} is not installed: {driver.install}")
        return
    target = f"opencl:kind={kind}{'' if kind == 'native' else driver.options}"
    command = [sys.executable, "-m", "inlaid", "conformance", "--target", target, "--jobs", str(jobs)]
    for prefix in only:
        command += ["--only", prefix]
    reports = FOLDER / "reports"
    reports.mkdir(exist_ok=True)
    (reports / f"{name}-{kind}.json").unlink(missing_ok=True)
    print(f"{driver.title}, kind={kind}", flush=True)
    subprocess.run([*command, "--report", str(reports / f"{name}-{kind}.json")], env=environment, check=False)


def page() -> str:
    """Return the page of all reports."""
    rows, failures = [], []
    for name, driver in DRIVERS.items():
        for kind in KINDS:
            path = FOLDER / "reports" / f"{name}-{kind}.json"
            if not path.exists():
                continue
            report = json.loads(path.read_text())
            counts = {outcome: sum(level[outcome] for level in report["levels"]) for outcome in ("passed", "failed", "skipped")}
            device = report["device"]["detail"].partition(": ")[2]
            measured = date.fromtimestamp(path.stat().st_mtime).isoformat()
            levels = [level["level"] for level in report["levels"] if level["passed"] + level["failed"]]
            cases = "all" if report["complete"] else f"a part of {', '.join(levels)}"
            numbers = " | ".join(str(counts[outcome]) for outcome in ("passed", "failed", "skipped"))
            rows.append(f"| {driver.title} | {device} | `{kind}` | {cases} | {numbers} | {measured} |")
            failed = [item for item in report["results"] if item["outcome"] == "failed"]
            failures += [f"| {driver.title} | `{kind}` | `{item['id']}` | {_reason(item['reason'])} |" for item in failed]
    listed = "\n".join(["| driver | kind | case | reason |", "|---|---|---|---|", *failures]) if failures else "None."
    return f"""\
# OpenCL drivers

The [conformance suite](conformance.md) of target `opencl` on drivers that run on a CPU: PoCL, Intel's CPU runtime, and rusticl on
llvmpipe, which has no `float64`: code of kind `gpu` is compiled with `float64=false` for it. `kind` is the option of the target.
`make opencl-drivers` runs the suite and writes this page; `make opencl-drivers ONLY="models runtime"` runs a part of the cases. The
tests run a sample on each of these drivers that is installed, and kernels on Oclgrind, which reports data races and accesses out of
bounds.

No GPU has run this code. Drivers of AMD, ARM (Mali), Qualcomm (Adreno), Apple and NVIDIA have never been tried; Clang compiles the
kernels as OpenCL C 1.2 and 3.0 for SPIR-V, on which several of their compilers are based.

| driver | device | kind | cases | passed | failed | skipped | date |
|---|---|---|---|---:|---:|---:|---|
{chr(10).join(rows)}

## Failures

{listed}
"""


def _reason(text: str) -> str:
    """Return a reason that fits a cell of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, driver in DRIVERS.items() if driver.conformance]
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--drivers", nargs="*", choices=names, default=names)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.install and "intel" in options.drivers and DRIVERS["intel"].library() is None:
        subprocess.run([sys.executable, "-m", *INTEL_COMMAND], cwd=ROOT, check=True)
    for name in options.drivers:
        for kind in options.kinds:
            run_suite(name, kind, options.only, options.jobs)
    if options.write is not None:
        options.write.write_text(page())


if __name__ == "__main__":
    main()
