"""The compiler of VTA. It lowers a region to loop programs, and the loop programs to one instruction stream."""
