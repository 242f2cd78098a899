"""A plugin for an int8 accelerator of 16 lanes with custom tensor layouts."""
