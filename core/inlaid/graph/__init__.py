"""The graph IR: nodes, types of calls, text form, patterns, rewriting, interpreter."""
