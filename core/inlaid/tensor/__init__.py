"""Loop programs: IR, tensor expressions, schedule primitives, interpreter."""
