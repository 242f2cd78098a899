"""The compiler: from quantised operators to scheduled loop programs, and from these to instruction streams."""
