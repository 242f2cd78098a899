"""Loop programs to LLVM text: knows LLVM, not x86. Other CPU targets print through it too."""
