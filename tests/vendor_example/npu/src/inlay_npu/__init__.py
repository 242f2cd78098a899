"""An int8 NPU for Inlay: rules, a code generator, and a runtime module over a simulator."""
