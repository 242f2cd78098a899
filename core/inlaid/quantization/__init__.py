"""Post-training quantisation of float models to int8. Without imports, since the command line needs only the settings."""
