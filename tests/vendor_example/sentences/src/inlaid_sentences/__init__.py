"""A plugin that imports models written as lines of text."""
