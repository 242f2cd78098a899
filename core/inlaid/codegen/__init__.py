"""What code generators share that print languages which several targets have."""
