"""Run the code on pages."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


ONE_PROGRAM = "<!-- The python blocks of this page are one program: each goes on where the one before ends. -->"
"""The first line of a page whose blocks continue one another."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its first line on the page, and the name of the `file` that it shows; "" for code to be run."""

    language: str
    file: str
    body: str
    line: int


def page_blocks(text: str) -> list[Block]:
    """Fenced blocks of a page. A block below a line with a file name in backquotes and a colon shows that file."""
    return [
        Block(fence["language"], fence["file"] or "", fence["body"], text.count("\n", 0, fence.start("body")) + 1)
        for fence in _FENCE.finditer(text)
    ]


def page_programs(text: str) -> list[Block]:
    """Blocks of a page in order. Where the page says so, all Python blocks are one, in the place of the first."""
    blocks = page_blocks(text)
    if not text.startswith(ONE_PROGRAM):
        return blocks
    parts = [block for block in blocks if block.language == "python"]
    joined = Block("python", "", "\n".join(block.body for block in parts), parts[0].line)
    return [joined if block is parts[0] else block for block in blocks if block is parts[0] or block.language != "python"]


def run_page(page: Path, folder: Path, path: str, languages: tuple[str, ...] = ("python", "sh")) -> int:
    """Write the files of a page into a folder and run its commands and programs there, each in a process of its own.

    `path` is the search path for commands. Returns the number of blocks that ran. On a page that is one program, every `text` block
    must be a part of what that program prints.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
    count = 0
    text = page.read_text(encoding="utf-8")
    blocks = page_programs(text)
    for block in blocks:
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.body, encoding="utf-8")
        elif block.language in languages:
            command = ["python", "-W", "error", "-c", block.body] if block.language == "python" else ["sh", "-euc", block.body]
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False)
            assert process.returncode == 0, f"{page.name}, line {block.line}:\n{process.stdout}{process.stderr}"
            count += 1
            if text.startswith(ONE_PROGRAM) and block.language == "python":
                for shown in blocks:
                    assert shown.language != "text" or shown.body in process.stdout, f"{page.name}, line {shown.line}: not printed"
    return count
