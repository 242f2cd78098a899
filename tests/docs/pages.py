"""The code on pages, and how it is run."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


ONE_PROGRAM = "<!-- The python blocks of this page are one program: each goes on where the one before ends. -->"
"""The first line of a page whose blocks are not programs by themselves."""


@dataclass(frozen=True)
class Block:
    """Code on a page: in which language, from which line on; the `file` that it is, "" where it is to be run."""

    language: str
    file: str
    body: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page. One under a line that is the name of a file in backquotes and a colon is that file."""
    return [
        Block(found["language"], found["file"] or "", found["body"], text.count("\n", 0, found.start("body")) + 1)
        for found in _FENCE.finditer(text)
    ]


def programs_of(text: str) -> list[Block]:
    """The blocks of a page, those of python as one where the page says that they are one program."""
    blocks = blocks_of(text)
    if not text.startswith(ONE_PROGRAM):
        return blocks
    parts = [block for block in blocks if block.language == "python"]
    joined = Block("python", "", "\n".join(block.body for block in parts), parts[0].line)
    return [joined, *(block for block in blocks if block.language != "python")]


def run_page(page: Path, folder: Path, path: str, languages: tuple[str, ...] = ("python", "sh")) -> int:
    """Do in a folder what a page says: write its files, run its commands and programs, each by itself. `path` is where commands are
    looked up. How many were run. A page that is one program shows as text only what that prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    count = 0
    text = page.read_text(encoding="utf-8")
    blocks = programs_of(text)
    for block in blocks:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.body, encoding="utf-8")
        elif block.language in languages:
            command = ["python", "-W", "error", "-c", block.body] if block.language == "python" else ["sh", "-euc", block.body]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False)
            assert done.returncode == 0, f"{page.name}, line {block.line}:\n{done.stdout}{done.stderr}"
            count += 1
            if text.startswith(ONE_PROGRAM):
                for shown in blocks:
                    assert shown.language != "text" or shown.body in done.stdout, f"{page.name}, line {shown.line}: not printed"
    return count
