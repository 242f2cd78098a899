"""Errors of Inlaid, which the runtime defines."""

from inlaid_runtime.errors import *  # noqa: F403
