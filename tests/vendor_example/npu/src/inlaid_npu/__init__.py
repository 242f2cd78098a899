"""An int8 NPU for Inlaid: rules, a code generator, and a runtime module over a simulator."""
