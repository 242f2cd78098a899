"""Printer of loop programs as LLVM text, independent of x86 so that other CPU targets can use it."""
