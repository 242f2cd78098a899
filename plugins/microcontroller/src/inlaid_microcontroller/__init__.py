"""Inlaid's target for microcontrollers: readable C99 with one arena and no interpreter."""
