"""Runs packages: executables, buffers, devices, and the files of packages. `inlaid_runtime` has the names for users."""
