"""VTA simulators (functional, timing, RTL core), configuration sweeps, and profile pages."""
