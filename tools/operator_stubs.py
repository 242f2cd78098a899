"""Generate core/inlaid/ops/__init__.pyi, which lets editors complete operators and type checkers check calls of them.

Run by `make format`; a test compares the file with the operators. Operands are expressions, or numbers and arrays, which become
constants.
"""

import inspect
import math
from pathlib import Path

from inlaid import ops
from inlaid.graph.operator import Operator

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


if __name__ == "__main__":
    STUB.write_text(render(), encoding="utf-8")
