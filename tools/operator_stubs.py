"""Generate core/inlaid/ops/__init__.pyi, which lets editors complete operators and type checkers check calls of them.

    python tools/operator_stubs.py [--check]

Run by `make generate` and `make format`. With `--check`, run by `make lint`, exits with 1 if the file does not match the operators.
Operands are expressions, or numbers and arrays, which become constants. `make docs` generates the reference page of the operators.
"""

import argparse
import ast
import inspect
import math
from pathlib import Path

from inlaid import ops
from inlaid.graph.operator import Operator

COMMAND = "make generate"
STUB = Path(__file__).parents[1] / "core" / "inlaid" / "ops" / "__init__.pyi"
HEAD = '''"""Written by tools/operator_stubs.py: do not edit."""

from collections.abc import Mapping, Sequence
from typing import Final

from inlaid.graph.ir import Call, Operand
from inlaid.graph.operator import Operator
from inlaid.graph.span import Span
from inlaid.ops.notation import mean as mean
from inlaid.ops.notation import split as split
from inlaid.ops.notation import subscript as subscript
from inlaid.ops.notation import sum as sum
from inlaid_runtime.arith import Dim

FAMILIES: Mapping[str, tuple[Operator, ...]]
OPERATORS: tuple[Operator, ...]
TABLE: Mapping[str, Operator]
'''


def parameter(item: inspect.Parameter) -> str:
    """Format a parameter with its type."""
    if item.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{item.name}: Operand"
    if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return f"{item.name}: Operand" + ("" if item.default is inspect.Parameter.empty else " | None = ...")
    if item.name == "span":
        return "span: Span | None = None"
    type_ = str(item.annotation)
    if type_.startswith("tuple[") and type_.endswith(", ...]"):
        type_ = f"Sequence[{type_.removeprefix('tuple[').removesuffix(', ...]')}]"
    if item.default is inspect.Parameter.empty:
        return f"{item.name}: {type_}"
    finite = not isinstance(item.default, float) or math.isfinite(item.default)
    return f"{item.name}: {type_} = {repr(item.default) if finite else '...'}"


def operator_stub(operator: Operator) -> str:
    """Format an operator: its class with the signature of `__call__`, and the instance."""
    name = f"_{operator.name.title().replace('_', '')}"
    parameters = list(inspect.signature(operator).parameters.values())
    texts = [parameter(item) for item in parameters]
    operands = [item for item in parameters if item.kind is not inspect.Parameter.KEYWORD_ONLY]
    if not any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in operands):
        texts.insert(len(operands), "*" if operator.arity[1] is not None else "*operands: Operand")
    lines = "".join(f"        {text},\n" for text in texts)
    call = f"    def __call__(  # type: ignore[override]\n        self,\n{lines}    ) -> Call: ...\n"
    return f"class {name}(Operator):\n{call}\n{operator.name}: Final[{name}]\n"


def render() -> str:
    """Render the stub file."""
    return "\n".join([HEAD, *(operator_stub(ops.TABLE[name]) for name in sorted(ops.TABLE))])


def is_stale() -> bool:
    """Test whether the stub file differs from what `render` returns, besides formatting."""
    return ast.dump(ast.parse(STUB.read_text(encoding="utf-8"))) != ast.dump(ast.parse(render()))


def main() -> int:
    """Write or check the stub file, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if the file is stale")
    if not parser.parse_args().check:
        STUB.write_text(render(), encoding="utf-8")
    elif is_stale():
        print(f"{STUB.relative_to(STUB.parents[3])} does not match the operators; run: {COMMAND}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
