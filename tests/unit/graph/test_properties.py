from __future__ import annotations

from hypothesis import given, settings

from inlaid.graph.ir import post_order
from inlaid.graph.keys import structural_key
from inlaid.graph.normal import is_a_normal_form, to_a_normal_form, to_graph_form
from inlaid.graph.parse import parse
from inlaid.graph.text import print_module
from inlaid.graph.transform import map_functions
from inlaid.graph.verify import verify

from .strategies import OPERATORS, Program, assert_close, programs, run


@settings(deadline=None, max_examples=60)
@given(programs())
def test_printing_and_parsing_is_the_identity(program: Program) -> None:
    verify(program.module)
    text, constants = print_module(program.module)
    again = parse(text, OPERATORS, constants)
    verify(again)
    assert structural_key(again) == structural_key(program.module)
    assert print_module(again) == (text, constants)
    for name, target in program.module.functions.items():
        spans = sorted(str(expr.span) for expr in post_order(target) if expr.span)
        assert sorted(str(expr.span) for expr in post_order(again[name]) if expr.span) == spans
    assert_close(run(again, program.inputs), run(program.module, program.inputs))


@settings(deadline=None, max_examples=40)
@given(programs())
def test_normal_forms_keep_the_answer(program: Program) -> None:
    expected = run(program.module, program.inputs)
    normal = map_functions(program.module, to_a_normal_form)
    verify(normal)
    assert all(is_a_normal_form(target) for target in normal.functions.values())
    assert_close(run(normal, program.inputs), expected)
    graph = map_functions(normal, to_graph_form)
    verify(graph)
    assert_close(run(graph, program.inputs), expected)
