"""Post-training quantisation of float models to int8. Imports nothing, since the command line needs only the settings."""
