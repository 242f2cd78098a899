"""Lowering of regions to loop programs, and of models to plans.

`region` makes kernels and placed buffers, `control` loops, `steps` is for code generators that take graphs. The stages of
`region` are rooms: `rewrites` of the graph, `selection`, `emission`, `memory`. `kernels` is about one kernel, `plans` about the
model around the regions.
"""
