"""Schedules for AMX: low-precision products by instructions on matrix tiles."""
