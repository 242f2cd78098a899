"""Run half of the x86-64 plugin: it loads and runs regions, without a compiler."""
