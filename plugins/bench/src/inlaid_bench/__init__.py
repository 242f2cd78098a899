"""Timing of models on Inlaid and on other engines: `inlaid bench`."""
