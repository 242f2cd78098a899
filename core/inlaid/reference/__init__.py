"""The reference target: every operator by its numpy definition. An ordinary plugin, in `inlaid.reference.plugin`."""
