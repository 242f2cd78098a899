"""What is asked of loop programs: accesses, footprints, ranges, keys, and the invariants that hold of all of them."""
