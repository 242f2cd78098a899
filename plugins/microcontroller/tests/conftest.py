"""Makes the models of the core's tests importable, which tests of this plugin run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
