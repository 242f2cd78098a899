"""Discovery, isolation of broken plugins, and routing."""

from __future__ import annotations

import subprocess
import sys
from email.message import Message
from importlib.metadata import PackageNotFoundError

import pytest
from tests.plugin_registry import discover

from inlaid.plugins import Phase, Target
from inlaid.plugins.registry import default_registry
from inlaid_runtime.errors import PluginError, TargetError, Unsupported
from inlaid_runtime.plugins.discovery import DISABLED

GOOD = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options:
        threads: int = 1
        fast: bool = False
        cpu: str = "native"

    @hookimpl
    def inlaid_targets():
        return [TargetSpec("good", "", lambda options: Capabilities(("float32",), cores=options.threads), options=Options)]

    class Codegen(Codegen):
        name = "good"
        def compile(self, unit, context): ...

    class Runtime(RuntimeModule):
        def __init__(self, device):
            self.device = device
        def check(self, artifact): ...
        def load(self, artifact, constants): ...

    @hookimpl
    def inlaid_codegen(target):
        return Codegen()

    @hookimpl
    def inlaid_runtime(target, device):
        return Runtime(device)

    @hookimpl
    def inlaid_probe():
        return DeviceStatus(True, "always here")

    @hookimpl
    def inlaid_op_rules(target):
        return [OpRule("relu", "good.relu")]
"""
HIJACKER = """
    @hookimpl
    def inlaid_targets():
        return [TargetSpec("aaa", "answers for everyone", lambda options: Capabilities(("float32",)))]

    class Codegen(Codegen):
        name = "hijacked"
        def compile(self, unit, context): ...

    @hookimpl
    def inlaid_codegen(target):
        return Codegen()

    @hookimpl
    def inlaid_probe(target):
        raise OSError("no driver")

    @hookimpl
    def inlaid_op_rules(target):
        return [OpRule("add", "aaa.add")]
"""
ZZZ = """
    @hookimpl
    def inlaid_op_rules(target):
        return (OpRule("mul", "zzz.mul"),) if target.kind == "good" else ()

    @hookimpl
    def inlaid_passes(target, phase):
        return [phase.value]

    @hookimpl
    def inlaid_schedules(target):
        return ["rule"]
"""


@pytest.mark.parametrize("registers", [0, 3])
def test_too_few_vector_registers_are_refused(make_plugin, registers):
    capabilities = f'Capabilities(("float32",), vector_bits=128, vector_registers={registers})'
    registry = discover([make_plugin("good", GOOD.replace('Capabilities(("float32",), cores=options.threads)', capabilities))])
    with pytest.raises(PluginError, match=f"expected at least 4 vector registers, got {registers}"):
        registry.capabilities(registry.target("good"))


def test_a_good_plugin_answers(make_plugin):
    registry = discover([make_plugin("good", GOOD)])
    assert registry.kinds() == ("good",)
    assert registry.problems() == ()
    target = registry.target("good:threads=3,fast=true")
    assert str(target) == "good:threads=3,fast=true"
    assert registry.target("good") == Target("good", registry.spec("good").options())
    assert registry.capabilities(target).cores == 3
    assert registry.codegen(target).name == "good"
    assert registry.runtime(target).device == 0
    assert registry.runtime(target, device=2).device == 2
    assert registry.probe(target).detail == "always here"
    assert [rule.name for rule in registry.op_rules(target)] == ["good.relu"]
    assert registry.passes(target, Phase.LOOP) == ()
    assert registry.schedules(target) == ()
    (info,) = registry.plugins()
    assert (info.name, info.kinds, info.status) == ("good", ("good",), "ok")


VERSIONED = GOOD.replace("options=Options)", "options=Options, versions=versions)").replace(
    "    @hookimpl\n    def inlaid_targets",
    "    def versions(options):\n        return {}\n\n    @hookimpl\n    def inlaid_targets",
    1,
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("(options, Options(2))", ["good", "good:threads=2"]),
        ("[]", "at least one version"),
        ("[3]", "must return Options, got int"),
        ("1 / 0", "division"),
    ],
)
def test_versions_of_a_target(make_plugin, answer, expected):
    registry = discover([make_plugin("good", VERSIONED.replace("{}", answer))])
    if isinstance(expected, list):
        assert list(map(str, registry.versions(registry.target("good")))) == expected
        return
    with pytest.raises(PluginError, match=expected) as failed:
        registry.versions(registry.target("good"))
    assert failed.value.plugin == "good"


def test_a_target_is_its_only_version_unless_it_says_otherwise(make_plugin):
    registry = discover([make_plugin("good", GOOD)])
    target = registry.target("good:threads=3")
    assert registry.versions(target) == (target,)


def test_another_plugin_cannot_answer_for_a_target(make_plugin):
    registry = discover([make_plugin("aaa", HIJACKER), make_plugin("good", GOOD)])
    good, aaa = registry.target("good"), registry.target("aaa")
    assert registry.codegen(good).name == "good"
    assert registry.codegen(aaa).name == "hijacked"
    assert registry.probe(good).available
    status = registry.probe(aaa)
    assert not status.available
    assert "no driver" in status.detail
    with pytest.raises(PluginError, match=r"aaa has no runtime.*plugin aaa"):
        registry.runtime(aaa)


def test_collected_hooks_come_from_the_owner_first_then_by_name(make_plugin):
    plugins = [make_plugin("zzz", ZZZ), make_plugin("aaa", HIJACKER), make_plugin("good", GOOD)]
    registry = discover(plugins)
    good = registry.target("good")
    assert [rule.name for rule in registry.op_rules(good)] == ["good.relu", "aaa.add", "zzz.mul"]
    assert [rule.name for rule in registry.op_rules(registry.target("aaa"))] == ["aaa.add", "good.relu"]
    assert registry.passes(good, Phase.AFTER_PARTITION) == (("zzz", "after-partition"),)
    assert registry.schedules(good) == ("rule",)
    assert registry.target("aaa").kind == "aaa"


BROKEN = {
    "import": ("import", "ModuleNotFoundError", "import a_vendor_library_that_is_not_here"),
    "exits": ("import", "SystemExit", "import sys\nsys.exit(3)"),
    "raises": ("import", "RuntimeError: boom", "raise RuntimeError('boom')"),
    "no_version": ("version", "does not state", "PLUGIN_API_VERSIONS = 1"),
    "old_version": ("version", "version 2", "PLUGIN_API_VERSION = 2"),
    "names_changed": ("version", "the table of names in docs/development-log.md", "PLUGIN_API_VERSION = 2"),
    "new_version": ("version", "version 4", "PLUGIN_API_VERSION = 4"),
    "misspelt": ("hooks", "inlaid_target", "@hookimpl\ndef inlaid_target(): return []"),
    "arguments": ("hooks", "speed", "@hookimpl\ndef inlaid_codegen(target, speed): return None"),
    "unmarked": ("hooks", "@hookimpl", "def inlaid_targets(): return []"),
    "raising": ("targets", "ZeroDivisionError", "@hookimpl\ndef inlaid_targets(): 1 / 0"),
    "not_a_list": ("targets", "must return a list", "@hookimpl\ndef inlaid_targets(): return 'x86'"),
    "not_a_spec": ("targets", "must return TargetSpec, got str", "@hookimpl\ndef inlaid_targets(): return ['x86']"),
    "bad_kind": (
        "targets",
        "a target kind must be",
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('a:b', '', lambda o: o)]",
    ),
    "own_duplicate": (
        "targets",
        "twice",
        "@hookimpl\ndef inlaid_targets():\n    spec = TargetSpec('twin', '', lambda o: o)\n    return [spec, spec]",
    ),
    "constant_capabilities": (
        "targets",
        "must be a function",
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('flat', '', Capabilities(()))]",
    ),
    "no_default": (
        "targets",
        "must have a bool",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Options:\n    threads: int\n"
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('bare', '', lambda o: o, options=Options)]",
    ),
    "mutable_options": (
        "targets",
        "frozen",
        "import dataclasses\n@dataclasses.dataclass\nclass Options:\n    threads: int = 1\n"
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('soft', '', lambda o: o, options=Options)]",
    ),
    "thief": (
        "targets",
        "already provided by plugin good",
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('good', '', lambda o: o)]",
    ),
    "a_thief": (
        "targets",
        "already provided by plugin good",
        "@hookimpl\ndef inlaid_targets(): return [TargetSpec('good', '', lambda o: o)]",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_listed_and_the_rest_works(make_plugin, name):
    stage, message, source = BROKEN[name]
    registry = discover([make_plugin(name, source), make_plugin("good", GOOD)])
    (problem,) = registry.problems()
    assert (problem.plugin, problem.stage) == (name, stage)
    assert message in problem.message
    assert registry.kinds() == ("good",)
    good = registry.target("good")
    assert registry.codegen(good).name == "good"
    assert [rule.name for rule in registry.op_rules(good)] == ["good.relu"]
    broken = next(info for info in registry.plugins() if info.name == name)
    assert broken.status == f"{stage}: {problem.message}"
    assert broken.kinds == ()


def test_all_broken_plugins_together(make_plugin):
    plugins = [make_plugin(name, source) for name, (_, _, source) in BROKEN.items()]
    registry = discover([*plugins, make_plugin("good", GOOD)])
    assert {problem.plugin: problem.stage for problem in registry.problems()} == {name: case[0] for name, case in BROKEN.items()}
    assert registry.kinds() == ("good",)


def test_two_plugins_of_one_name(make_plugin):
    registry = discover([make_plugin("good", GOOD), make_plugin("good", HIJACKER)])
    assert registry.kinds() == ("good",)
    (problem,) = registry.problems()
    assert problem.stage == "import"
    assert "same name" in problem.message
    assert registry.codegen(registry.target("good")).name == "good"


def test_disabled_by_the_environment(make_plugin, monkeypatch):
    monkeypatch.setenv(DISABLED, "aaa, zzz")
    registry = discover([make_plugin("aaa", "raise SystemExit"), make_plugin("good", GOOD)])
    (problem,) = registry.problems()
    assert (problem.plugin, problem.stage) == ("aaa", "disabled")


def test_an_error_in_a_hook_names_plugin_and_hook(make_plugin):
    source = """
        from inlaid_runtime.errors import Unsupported

        @hookimpl
        def inlaid_targets():
            return [TargetSpec("faulty", "", lambda options: 1 / 0)]

        @hookimpl
        def inlaid_codegen(target):
            return object()

        @hookimpl
        def inlaid_runtime(target):
            raise Unsupported("not on this machine")

        @hookimpl
        def inlaid_op_rules(target):
            raise KeyError("relu")

        @hookimpl
        def inlaid_schedules(target):
            return 3
    """
    registry = discover([make_plugin("faulty", source)])
    target = registry.target("faulty")
    with pytest.raises(PluginError, match=r"inlaid_op_rules failed: KeyError: 'relu' \(plugin faulty\)"):
        registry.op_rules(target)
    with pytest.raises(PluginError, match=r"capabilities failed: ZeroDivisionError.*plugin faulty"):
        registry.capabilities(target)
    with pytest.raises(PluginError, match=r"inlaid_codegen must return a Codegen, got object"):
        registry.codegen(target)
    with pytest.raises(PluginError, match=r"inlaid_schedules must return a list or tuple, got int"):
        registry.schedules(target)
    with pytest.raises(Unsupported, match=r"not on this machine \(plugin faulty\)"):
        registry.runtime(target)


def test_an_unknown_target_is_answered_with_what_there_is(make_plugin):
    registry = discover([make_plugin("good", GOOD), make_plugin("x86", "import nothing_like_it")])
    with pytest.raises(TargetError) as caught:
        registry.target("nope")
    text = str(caught.value)
    assert "no target 'nope' is installed" in text
    assert "installed: good" in text
    assert "unusable: x86 (import: ModuleNotFoundError" in text
    assert 'pip install "inlaid[' in text
    with pytest.raises(TargetError, match=r'reinstall it: pip install "inlaid\[x86\]"'):
        registry.target("x86:threads=1")
    empty = discover([])
    with pytest.raises(TargetError, match=r'installed: none; pip install "inlaid\[x86\]"'):
        empty.target("x86")


def test_only_extras_that_bring_a_target_are_offered(monkeypatch):
    facts = Message()
    for extra in ("cost", "x86", "vta-fpga"):
        facts["Provides-Extra"] = extra
    for text in (
        "scipy>=1.11; extra == 'cost'",
        "inlaid-x86==0.1.0; extra == 'x86'",
        "inlaid-vta-fpga @ file:///here ; extra == 'vta-fpga'",
    ):
        facts["Requires-Dist"] = text
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: facts)
    with pytest.raises(TargetError) as caught:
        discover([]).target("nope")
    assert str(caught.value).endswith('to install more targets: pip install "inlaid[vta_fpga]" or pip install "inlaid[x86]"')


def test_the_runtime_alone_names_the_distribution_that_has_the_reference(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.metadata", missing)
    with pytest.raises(TargetError, match=r"'reference' is installed; .*to install reference: pip install inlaid; other targets"):
        discover([]).target("reference")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good:speed=3", "has no option 'speed'"),
        ("good:threads", "has no value"),
        ("good:threads=many", "must be an integer, got"),
        ("good:fast=perhaps", "must be true or false, got"),
    ],
)
def test_a_malformed_target_is_refused(make_plugin, text, message):
    registry = discover([make_plugin("good", GOOD)])
    with pytest.raises(TargetError, match=message):
        registry.target(text)


def test_the_installed_plugins_are_found_once():
    assert default_registry() is default_registry()
    assert "reference" in {info.name for info in default_registry().plugins()}


def test_discovery_loads_no_compiler_package():
    code = """
import sys
from inlaid.plugins.registry import default_registry
default_registry()
heavy = [name for name in sys.modules if name.split(".")[:2] in
         [["inlaid", part] for part in ("graph", "tensor", "ops", "passes", "schedules", "lowering", "partition", "frontends")]]
assert not heavy, heavy
assert not {"llvmlite", "onnx", "ml_dtypes"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
