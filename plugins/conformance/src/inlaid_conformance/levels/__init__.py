"""The checks, by level. Each module lists its cases in `CASES`."""
