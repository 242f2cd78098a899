"""Last stage of lowering a region: the order of its calls, and the offsets of its buffers in the arena and in memory scopes."""
