"""The compiler of VTA: regions to loop programs, loop programs to one instruction stream."""
