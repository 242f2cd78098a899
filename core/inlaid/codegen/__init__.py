"""Code generation shared by targets: C, SPMD kernel languages, and the ELF linker."""
