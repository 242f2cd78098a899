"""Capsules, beside numpy's."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from inlaid_runtime.errors import InputError
from inlaid_runtime.execution.arrays import address
from inlaid_runtime.execution.dlpack import export_capsule, import_capsule

CPU = (1, 0)


class Exporter:
    """An array as numpy takes it: by a capsule of ours."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return export_capsule(address(self.array), CPU, self.array.shape, self.array.dtype, self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 2)])
def test_there_and_back(dtype, shape):
    array = np.empty(shape, dtype)
    array[...] = np.random.default_rng(0).uniform(0, 9, shape)
    imported_array = np.from_dlpack(Exporter(array))
    np.testing.assert_array_equal(imported_array, array)
    assert imported_array.dtype == array.dtype and (not array.size or np.shares_memory(imported_array, array))
    if dtype == "complex64":
        with pytest.raises(InputError, match="unsupported DLPack dtype"):
            import_capsule(array.__dlpack__())
        return
    ours = import_capsule(array.__dlpack__())
    assert (ours.shape, ours.dtype, ours.device) == (array.shape, array.dtype, CPU)
    assert not array.size or ours.address == address(array)


def test_bfloat16():
    array = np.ones(4, ml_dtypes.bfloat16)
    ours = import_capsule(export_capsule(address(array), CPU, (4,), array.dtype, array))
    assert ours.dtype == array.dtype
    with pytest.raises(BufferError, match="does not support dtype"):
        export_capsule(0, CPU, (1,), np.dtype("U3"), None)


def test_owners_live_as_long_as_somebody_has_the_tensor():
    class Owner:
        pass

    owner = Owner()
    owner_reference = weakref.ref(owner)
    capsule = export_capsule(0, CPU, (0,), np.dtype("float32"), owner)
    del owner
    gc.collect()
    assert owner_reference() is not None
    tensor = import_capsule(capsule)
    del capsule
    gc.collect()
    assert owner_reference() is not None
    del tensor
    gc.collect()
    assert owner_reference() is None
    dropped = export_capsule(0, CPU, (0,), np.dtype("float32"), owner := Owner())
    owner_reference = weakref.ref(owner)
    del owner, dropped
    gc.collect()
    assert owner_reference() is None


def test_what_is_refused():
    array = np.zeros((3, 4), np.float32)
    with pytest.raises(InputError, match="expected a row-major tensor"):
        import_capsule(array.T.__dlpack__())
    capsule = array.__dlpack__()
    import_capsule(capsule)
    with pytest.raises(InputError, match="unused DLPack capsule"):
        import_capsule(capsule)
    with pytest.raises(InputError, match="unused DLPack capsule"):
        import_capsule("nothing")
