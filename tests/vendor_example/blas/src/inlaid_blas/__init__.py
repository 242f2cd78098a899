"""Matrix products by OpenBLAS for Inlaid: regions are C that calls the library."""
