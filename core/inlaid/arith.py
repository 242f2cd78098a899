"""Integer expressions over sizes, which the runtime defines."""

from inlaid_runtime.arith import *  # noqa: F403
