"""First stage of lowering a region: which schedule offer, layouts, in-place updates and views implement each call."""
