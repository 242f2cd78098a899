"""Simulators of VTA: functional, timing, and the RTL core; sweeps and pages."""
