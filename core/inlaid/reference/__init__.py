"""The reference target: evaluates operators by their numpy definitions. An ordinary plugin, in `inlaid.reference.plugin`."""
