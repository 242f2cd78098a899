"""Matrix products by OpenBLAS for Inlay: regions are C that calls the library."""
