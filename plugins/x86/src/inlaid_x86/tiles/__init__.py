"""Schedules for AMX: products of narrow numbers through instructions on matrix tiles."""
