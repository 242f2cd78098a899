"""Quantisation: int8 models from float ones. Nothing is imported here: the command line asks for the settings alone."""
