"""Schedule rules that targets share, for vector CPUs and for grids of threads."""
