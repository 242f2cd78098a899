"""The Acme accelerator, for Inlaid."""
