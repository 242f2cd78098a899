"""Building programs, and the cache of binaries."""

import pytest

from inlaid_opencl import programs
from inlaid_opencl.programs import build
from inlaid_runtime.cache import MemoryCache, caches
from inlaid_runtime.errors import CompileError

SOURCE = "__kernel void k(__global int *x) { x[get_global_id(0)] = 7; }"


@pytest.fixture
def built(monkeypatch):
    """How often a source is built, by a driver that is taken for one without a cache."""
    monkeypatch.setattr(programs, "CACHING_DRIVERS", frozenset())
    builds, real = [], programs._from_source

    def counting(*args):
        builds.append(args)
        return real(*args)

    monkeypatch.setattr(programs, "_from_source", counting)
    return builds


def test_a_binary_is_kept(device, built):
    store = MemoryCache()
    for turn in range(3):
        assert build(SOURCE, "region", device, store).get_info(programs.cl.program_info.KERNEL_NAMES) == "k"
        assert len(built) == len(store.values) == 1, turn
    build(SOURCE.replace("7", "8"), "region", device, store)
    assert len(built) == 2


@pytest.mark.parametrize("binary", [b"", b"damaged", bytes(1000)])
def test_a_binary_that_the_driver_refuses(device, built, binary):
    store = MemoryCache()
    build(SOURCE, "region", device, store)
    (key,) = store.values
    good = store.values[key]
    store.values[key] = binary
    assert build(SOURCE, "region", device, store).get_info(programs.cl.program_info.KERNEL_NAMES) == "k"
    assert len(built) == 2 and store.values[key][:8] == good[:8]


def test_the_cache_is_that_of_the_core(device, built, monkeypatch):
    build(SOURCE + "// kept", "region", device)
    build(SOURCE + "// kept", "region", device)
    assert len(built) == 1 and caches().objects.usage().entries
    monkeypatch.setenv("INLAID_CACHE", "off")
    build(SOURCE + "// kept", "region", device)
    assert len(built) == 2


def test_a_driver_with_a_cache_of_its_own(device):
    store = MemoryCache()
    build(SOURCE, "region", device, store)
    assert bool(store.values) == (device.device.platform.name not in programs.CACHING_DRIVERS)


def test_source_that_the_driver_refuses(device):
    source = "\n".join(f"__kernel void k{number}(int x) {{ missing_{number}(); }}" for number in range(30))
    with pytest.raises(CompileError, match=r"(?s)cannot build the kernels of region region:\n.*missing_0") as caught:
        build(source, "region", device, MemoryCache())
    assert len(caught.value.message.splitlines()) <= programs._LINES + 2
    assert caught.value.plugin == "opencl" and "option kind" in caught.value.remedy
    build(SOURCE, "region", device, MemoryCache())
