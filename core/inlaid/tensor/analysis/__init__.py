"""Analyses of loop programs: accesses, footprints, ranges, structural keys, and verification of invariants."""
