"""Thresholds of the garbage collector, log messages, and reports of faults."""
