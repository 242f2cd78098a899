"""Kernels: the body of a kernel in the graph, its unscheduled loop program, what it needs of a target, and the passes that lower a
scheduled kernel to the loops that code generators print."""
