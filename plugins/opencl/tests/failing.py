"""Drivers that fail."""

import pyopencl as cl


def failing(code):
    """A function of the driver that gives an error code."""

    def fail(*args, **kwargs):
        raise cl.RuntimeError(cl._cl._ErrorRecord(msg=f"code {code}", code=code, routine="clFail"))

    return fail
