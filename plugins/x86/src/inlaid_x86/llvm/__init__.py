"""Printer of loop programs as LLVM text. It is independent of x86, so other CPU targets can use it."""
