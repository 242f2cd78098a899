"""Inlaid as an ONNX backend: the module that the distribution inlaid-onnx provides."""

import sys
from typing import TYPE_CHECKING

from inlaid.attributes import attribute

if TYPE_CHECKING:
    from inlaid_onnx.backend import *  # noqa: F403
else:
    sys.modules[__name__] = attribute("onnx_backend")
