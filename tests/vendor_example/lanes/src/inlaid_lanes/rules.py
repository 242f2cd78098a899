"""What the accelerator takes: quantised layers on int8 images and matrices whose operands fit on the chip together."""

from inlaid.graph.pattern import is_op, wildcard
from inlaid.ops.composites import quantised_binary, quantised_conv, quantised_matmul, window
from inlaid.plugins import Accept, OpRule, Reject
from inlaid_lanes.form import ON_CHIP, pack_weights, stored_bytes


def rules():
    pool = is_op("max_pool")(wildcard().named("x")).named("pool")
    return (
        OpRule(quantised_conv(), "conv", _windowed),
        OpRule(quantised_matmul(), "matmul", _fits),
        OpRule(quantised_binary("add"), "add", _alike),
        OpRule(pool, "max_pool", _windowed),
    )


def _fits(found, rank=2):
    data = [found.root, *(found[name] for name in "xab" if name in found)]
    for part in (*data, *([found["w"]] if "w" in found else [])):
        if part.type.dtype.name != "int8" or part.type.rank != rank:
            return Reject(f"{part.type!r} is not of int8 with {rank} dimensions")
    needed = sum(stored_bytes(part.type) for part in data)
    if "w" in found:
        needed += weights_of(found.constant("w"), grouped(found.captures)).nbytes
    return (
        Accept() if needed <= ON_CHIP else Reject(f"operands of {needed} bytes, as they are stored, exceed {ON_CHIP} on the chip")
    )


def _alike(found):
    if "real_a" not in found:
        return Reject("operands are added in float32 alone")
    if found["a"].type.shape != found["b"].type.shape:
        return Reject("operands of different shapes are not added")
    return _fits(found, 4 if found.root.type.rank == 4 else 2)


def _windowed(found):
    if found.root.type.rank != 4:
        return Reject(f"a window over {found['x'].type!r} is not of two dimensions")
    groups = grouped(found.captures)
    if groups not in (1, found["x"].type.shape[1]) or (groups > 1 and found.root.type.shape[1] != groups):
        return Reject(f"{groups} groups are neither one nor one for each channel")
    return _fits(found, 4) if window(found.captures).dilations == (1, 1) else Reject("dilated windows are not supported")


def grouped(parts):
    """The groups of a convolution, 1 of anything else."""
    return parts["conv"].attrs.groups if "conv" in parts else 1


def weights_of(array, groups):
    """Weights as they are stored, from O I H W or I O."""
    return pack_weights(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array[None, None], groups > 1)
