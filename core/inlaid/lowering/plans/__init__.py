"""Execution plans: the instructions that run a model around its regions, with copies to devices and donations of buffers."""
