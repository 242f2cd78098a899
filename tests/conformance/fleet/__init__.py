"""Plugins for the conformance suite's own tests: one that keeps the contract, and others that break one promise each.

Each is a module of its own, as an entry point names it. They share the sound one's hooks and replace what they break.
"""
