"""The checks, level by level. Each module lists its cases in `CASES`."""
