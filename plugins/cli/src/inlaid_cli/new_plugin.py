"""inlaid new-plugin."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path

import click

from inlaid import __version__
from inlaid.plugins.registry import default_registry
from inlaid.plugins.target_spec import Level
from inlaid_cli.common import echo, json_option
from inlaid_cli.json_output import print_json
from inlaid_runtime.errors import InputError
from inlaid_runtime.execution.output import write_text
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BANNED = ("api", "driver", "frontends", "onnx_backend", "partitioning", "reference", "settings")
"""Modules of the compiler that plugins must not import."""
_BANNED_OF_RUNTIME = ("inlaid_runtime.execution.executor", "inlaid_runtime.execution.layout")
_DTYPES = {Level.REGION: '"float32",', Level.LOOP: '"float32", "int32", "int64", "bool"'}


@click.command("new-plugin")
@click.argument("name")
@click.option(
    "--level",
    type=click.Choice([level.value for level in Level]),
    default=Level.REGION.value,
    show_default=True,
    help="Input of the code generator: regions as graphs, or as loop programs.",
)
@click.option(
    "--memory",
    type=click.Choice(["host", "device"]),
    default="host",
    show_default=True,
    help="Where regions keep their values: host memory, or device memory (only with --level region).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The project's folder. Default: inlaid-NAME.")
@json_option
def new_plugin_command(name: str, level: str, memory: str, output: Path | None, as_json: bool) -> None:
    """Create a plugin project for a new target NAME. As generated, it installs, runs and passes the conformance suite."""
    folder = output or Path(_distribution(name))
    files = render(name, Level(level), memory)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already exists and is not empty", remedy="choose another folder with -o")
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if as_json:
        print_json({"folder": str(folder), "files": sorted(files)})
        return
    echo(f"wrote {len(files)} files to {folder}; next:")
    echo(f'  cd {folder}\n  pip install -e ".[test]"\n  pytest\n  inlaid conformance --target {name}')


def render(name: str, level: Level, memory: str = "host") -> dict[str, str]:
    """Render the files of a project, by path. `memory` is "host" or "device". Raises `InputError` for an invalid or existing target
    name, and for the loop level with device memory."""
    if memory == "device" and level is Level.LOOP:
        raise InputError("expected --level region for --memory device, got loop", remedy="loop-level projects run C on the host")
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InputError(f"a target name must be lower-case letters, digits and underscores, starting with a letter, got {name!r}")
    if name in default_registry().kinds():
        raise InputError(f"target {name!r} exists, in plugin {default_registry().owner(name)}", remedy="choose another name")
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = resources.files("inlaid_cli") / "templates" / "plugin"
    environment = Environment(
        loader=FunctionLoader(lambda path: (templates / path).read_text(encoding="utf-8")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # the files are Python, TOML and Markdown, not HTML
    )
    package = f"inlaid_{name}"
    major, minor = __version__.split(".")[:2]
    facts = {
        "name": name,
        "package": package,
        "distribution": _distribution(name),
        "title": name.title().replace("_", ""),
        "level": level.value,
        "dtypes": _DTYPES[level],
        "memory": memory,
        "banned": [*(f"inlaid.{module}" for module in _BANNED), *_BANNED_OF_RUNTIME],
        "api_version": PLUGIN_API_VERSION,
        "release": f"{major}.{minor}",
        "next_release": f"{major}.{int(minor) + 1}",
    }
    sources = {
        "pyproject.toml": "both/pyproject.toml",
        "README.md": "both/README.md",
        ".gitignore": "both/gitignore",
        ".github/workflows/test.yml": "both/ci.yml",
        f"src/{package}/__init__.py": "both/init.py",
        **{f"src/{package}/{part}.py": f"both/{part}.py" for part in ("plugin", "runtime_plugin")},
        **{f"src/{package}/{part}.py": f"{level.value}/{part}.py" for part in ("rules", "codegen", "runtime")},
        **({f"src/{package}/runtime.py": "region/device_runtime.py"} if memory == "device" else {}),
        f"tests/test_{name}.py": "both/test.py",
    }
    return {file: environment.get_template(f"{source}.jinja").render(facts) for file, source in sources.items()}


def _distribution(name: str) -> str:
    return f"inlaid-{name.replace('_', '-')}"
