"""An int8 accelerator of 16 lanes: a plugin with layouts of its own."""
