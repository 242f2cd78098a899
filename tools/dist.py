"""Build a wheel and an archive of every distribution in dist/, check them, and install them as users will.

    python tools/dist.py [--output dist]
    python tools/dist.py --install [--output dist]

Files depend on the sources alone: their times are that of the last commit, or SOURCE_DATE_EPOCH, and two runs give equal bytes.
twine checks the metadata. `--install` installs the files of the folder as README.md and the pages of the parts say: Inlaid with a
target, the runtime alone, the core with x86, and each part alone. Each has a fresh environment, which then runs a program.
Dependencies come from the index that pip uses.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPILE = """
import inlaid
x = inlaid.var("x", (2, 2))
print(inlaid.compile(inlaid.function([x], inlaid.ops.relu(x)), targets=["{target}"]).regions[0].target)
"""
LIST = "from inlaid.plugins.registry import default_registry; print(default_registry().spec('{kind}').kind)"
USES = {
    "inlaid-runtime": "import inlaid_runtime; print(inlaid_runtime.load)",
    "inlaid-core inlaid-x86": COMPILE.format(target="x86"),
    "inlaid": "import inlaid; print(inlaid.quantize, inlaid.onnx_backend)",
    "inlaid[x86]": COMPILE.format(target="x86"),
    "inlaid[x86,tflite,bench,conformance]": "import inlaid_bench.command, inlaid_conformance.command, inlaid_tflite.importer",
}
"""Programs to run, keyed by the requirements to install for each. `uses` adds those of targets."""


def folders() -> list[Path]:
    """Return the folders of all distributions, each after those that it requires."""
    return [ROOT / "runtime", ROOT / "core", *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml")), ROOT]


def commit_time() -> str:
    """Return the time of the last commit in seconds; 2020-02-02, hatchling's default, outside of a repository."""
    command = ["git", "log", "-1", "--format=%ct"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return process.stdout.strip() or "1580601600"


def build(output: Path) -> list[Path]:
    """Build all distributions, in place of those in the folder. Returns the files, sorted."""
    output.mkdir(parents=True, exist_ok=True)
    for file in [*output.glob("inlaid*.whl"), *output.glob("inlaid*.tar.gz")]:
        file.unlink()
    environment = {"SOURCE_DATE_EPOCH": commit_time(), **os.environ}
    for folder in folders():
        # A wheel is built from the checkout: from an archive, hatchling declares one spelling of an extra, and pip below 23.3
        # compares extras literally.
        command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", str(output), str(folder)]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return sorted([*output.glob("inlaid*.whl"), *output.glob("inlaid*.tar.gz")])


def uses() -> dict[str, str]:
    """Return all programs to run, keyed by the requirements that are installed in a fresh environment for each."""
    targets = {}
    for folder in folders():
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name in project.get("entry-points", {}).get("inlaid.runtimes", {}):
            if folder.parent.name == "plugins":
                targets[project["name"]] = LIST.format(kind=name)
    return {**USES, **targets}


def install(output: Path) -> None:
    """Install from the folder, in fresh environments, and run the programs. Raises CalledProcessError."""
    for requirement, program in uses().items():
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True, symlinks=True)
            python = Path(folder, "bin", "python")
            local = ["install", "--quiet", "--find-links", str(output.resolve()), "--prefer-binary"]
            subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *local, *requirement.split()], check=True)
            subprocess.run([python, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([python, "-c", program], cwd=folder, check=True)
            print(f"installed {requirement}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the files (default: %(default)s)")
    parser.add_argument("--install", action="store_true", help="install the files that an earlier run has built")
    options = parser.parse_args(arguments)
    if options.install:
        install(options.output)
        return
    files = build(options.output)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    for file in files:
        print(hashlib.sha256(file.read_bytes()).hexdigest(), file.name)


if __name__ == "__main__":
    main()
