"""What processors report, and what code may be compiled for."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_x86.emit import target_machine
from inlaid_x86_runtime import cpu
from inlaid_x86_runtime.instruction_sets import CPUINFO, FEATURES, LEVELS, reported, usable
from inlaid_x86_runtime.options import X86Options

NAMES = [feature.name for feature in FEATURES]


def cpuinfo(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\nbugs\t\t:\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    return path


V3_FLAGS = "fpu sse sse2 pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c abm bmi1 avx2 bmi2"
V4_FLAGS = f"{V3_FLAGS} avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (V3_FLAGS, LEVELS["x86-64-v3"]),
        (V4_FLAGS, LEVELS["x86-64-v4"]),
        (f"{V4_FLAGS} avx512_vnni avx_vnni avx512_bf16 amx_tile amx_int8 amx_bf16 sse4a clzero", LEVELS["sapphirerapids"]),
        # Hypervisors hide features one by one; LLVM would enable what the others imply.
        (f"{V3_FLAGS} avx512f avx512_vnni avx512_bf16", LEVELS["x86-64-v3"]),
        (V3_FLAGS.replace("movbe ", ""), set(LEVELS["x86-64-v3"]) - {"movbe"}),
        (V4_FLAGS.replace("avx ", ""), {*LEVELS["x86-64-v2"], "bmi", "bmi2", "lzcnt", "movbe"}),
        ("fpu sse sse2 ssse3", ()),
    ],
)
def test_flags_to_features(tmp_path: Path, flags: str, expected: set[str]) -> None:
    assert reported(cpuinfo(tmp_path, flags)) == set(expected)


def test_without_proc_there_is_the_baseline(tmp_path: Path) -> None:
    assert reported(tmp_path / "missing") == frozenset()


@pytest.mark.skipif(not CPUINFO.exists(), reason="/proc is not mounted")
def test_llvm_reads_the_same_of_this_processor() -> None:
    """LLVM executes CPUID and XGETBV."""
    detected = {name for name, present in llvm.get_host_cpu_features().items() if present}
    assert reported() == set(usable(detected & set(NAMES)))


@given(st.sets(st.sampled_from(NAMES)))
def test_usable_features_imply_no_others(names: set[str]) -> None:
    features = list(usable(names))
    assert set(features) <= names and list(usable(features)) == features
    by_name = {feature.name: feature for feature in FEATURES}
    assert all(set(by_name[name].implies) <= set(features) for name in features)


def test_llvm_knows_every_feature(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM writes to the standard error that a feature is not recognized, and goes on."""
    target_machine(",".join(f"+{name}" for name in NAMES))
    assert capfd.readouterr().err == ""


def test_native_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, bits in (("x86-64-v2", 128), ("x86-64-v3", 256), ("x86-64-v4", 512)):
        monkeypatch.setattr(cpu, "processor_features", lambda level=level: frozenset(LEVELS[level]))
        assert cpu.features(X86Options()) == tuple(sorted(LEVELS[level]))
        assert cpu.vector_bits(X86Options()) == bits
