"""Inlaid plugin for x86-64 CPUs."""
