"""What compiling needs of its process: thresholds of the garbage collector, log messages, and reports of faults."""
