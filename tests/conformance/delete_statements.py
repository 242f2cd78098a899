"""Deletes each statement of a relation between sizes in turn, and checks that the test of relations fails without it.

`python tests/conformance/delete_statements.py --part 1/8` runs an eighth of the statements. A statement is deleted in a copy of the
sources: its call is replaced by one that discards what it states, and returns the same value. Then only the programs of the
operators that the statement refuses are run. The script prints the first case that fails, or `NOT CAUGHT`, and exits with status 1
if a statement is not caught.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

from relations.census import Census, take_census  # noqa: E402
from relations.programs import Choice  # noqa: E402
from relations.runner import run_way  # noqa: E402
from relations.statements import Statement, statements  # noqa: E402

import inlaid  # noqa: E402

OPERATORS = 3
"""Number of operators of a statement whose programs are run: many share those of broadcasting."""
RUN = ("reference", "x86")
"""Ways to run them."""
UNCHECKED = '''

def unchecked(stated, *args):
    """Return what a function of this module returns, without its statement."""
    with recording(lenient=True):
        return stated(*args)
'''


def without(statement: Statement, folder: Path) -> Path:
    """Copy the core's sources to a folder, without a statement. Returns the folder to import them from."""
    copy = folder / "core"
    shutil.copytree(Path(inlaid.__file__).parent, copy / "inlaid")
    file = (copy / statement.first.module.replace(".", "/")).with_suffix(".py")
    tree = ast.parse(file.read_text())
    replaced = _Replaced(statement)
    tree = ast.fix_missing_locations(replaced.visit(tree))
    assert replaced.count == 1, f"expected one call at {statement.first}, found {replaced.count}"
    last = max(number for number, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    tree.body[last + 1 : last + 1] = ast.parse("from inlaid.graph.conditions import unchecked").body
    file.write_text(ast.unparse(tree))
    conditions = copy / "inlaid" / "graph" / "conditions.py"
    conditions.write_text(conditions.read_text() + UNCHECKED)
    return copy


class _Replaced(ast.NodeTransformer):
    """Replaces the call of a statement, and counts such calls."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.count = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if node.lineno == self.statement.first.number and ast.unparse(node) == self.statement.text:
            self.count += 1
            if isinstance(node.func, ast.Name) and node.func.id == "not_negative":
                return ast.Tuple([], ast.Load())  # it yields conditions and states none
            return ast.Call(ast.Name("unchecked", ast.Load()), [node.func, *node.args], [])
        return self.generic_visit(node)


def caught(statement: Statement, census: Census) -> str:
    """Return the first case that fails without a statement, "" if there is none. No case fails with all statements."""
    refused = sorted(name for line, names in census.lines.items() if statement.covers(line) for name in names)
    operators = tuple(refused[:: max(len(refused) // OPERATORS, 1)][:OPERATORS])
    with tempfile.TemporaryDirectory() as folder:
        source = without(statement, Path(folder))
        for way in RUN:
            report = run_way(way, Choice(operators), Path(folder), source)
            if report.problems:
                return f"{way}: {report.problems[0]}"
        return _lost(operators, census, source)


def _lost(operators: Sequence[str], census: Census, source: Path) -> str:
    """Return the first case that is refused otherwise, or accepted, without a statement."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, FOLDER)))}
    command = [sys.executable, "-m", "relations.census", *operators]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        return f"inference: {process.stderr.strip().splitlines()[-1]}"
    census_record = json.loads(process.stdout)
    for program, cases in census.refused.items():
        if census.operators[program] in operators:
            for case, message in cases.items():
                other = census_record.get(program, {}).get(case)
                if other != message:
                    return f"inference: {program} {case}: {'is accepted' if other is None else other}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of the statements")
    number, count = map(int, parser.parse_args().part.split("/"))
    census = take_census()
    missed = 0
    chosen = statements()[number - 1 :: count]
    for statement in chosen:
        how = caught(statement, census)
        missed += not how
        print(f"{statement}\n    {how.splitlines()[0][:300] if how else 'NOT CAUGHT'}", flush=True)
    print(f"{len(chosen)} statements, {missed} not caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
