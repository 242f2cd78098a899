"""Inlay: a deep-learning compiler with a minimal core into which every hardware target plugs."""
