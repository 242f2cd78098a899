"""Selection of the importer of a model, and what importers share."""
