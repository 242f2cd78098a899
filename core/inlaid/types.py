"""Element types, tensor types and layouts, which the runtime defines."""

from inlaid_runtime.types import *  # noqa: F403
