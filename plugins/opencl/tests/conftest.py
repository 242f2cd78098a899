"""Each process that runs tests has a cache of its own: that of PoCL 3.0 has races."""

import os
import tempfile

os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-")
