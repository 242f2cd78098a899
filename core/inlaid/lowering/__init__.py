"""Lowering of regions: `region` to kernels and placed buffers, `control` to loops, `steps` for code generators that take graphs.

The stages of `region` are rooms: `rewrites` of the graph, `selection`, `emission`, `memory`. `kernels` is about one kernel, `plans`
about the model around the regions.
"""
