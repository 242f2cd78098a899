"""Operator rules: quantised layers on int8 images and matrices whose operands fit into the on-chip memory."""

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
            return Reject(f"expected int8 of rank {rank}, found {part.type!r}")
    needed = sum(stored_bytes(part.type) for part in data)
    if "w" in found:
        needed += weights_of(found.constant("w"), grouped(found.captures)).nbytes
    return Accept() if needed <= ON_CHIP else Reject(f"expected stored operands of at most {ON_CHIP} bytes, found {needed}")


def _alike(found):
    if "real_a" not in found:
        return Reject("expected operands that are added in float32, found an integer addition")
    if found["a"].type.shape != found["b"].type.shape:
        return Reject("expected operands of equal shape, found different shapes")
    return _fits(found, 4 if found.root.type.rank == 4 else 2)


def _windowed(found):
    if found.root.type.rank != 4:
        return Reject(f"expected a 2-D window, found one over {found['x'].type!r}")
    groups = grouped(found.captures)
    if groups not in (1, found["x"].type.shape[1]) or (groups > 1 and found.root.type.shape[1] != groups):
        return Reject(f"expected 1 group or one per channel, found {groups} groups")
    return _fits(found, 4) if window(found.captures).dilations == (1, 1) else Reject("expected no dilation, found a dilated window")


def grouped(parts):
    """Return the groups of a convolution, 1 for other composites."""
    return parts["conv"].attrs.groups if "conv" in parts else 1


def weights_of(array, groups):
    """Pack weights O I H W or I O to the stored layout."""
    return pack_weights(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array[None, None], groups > 1)
