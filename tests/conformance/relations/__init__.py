"""Programs whose sizes are all symbolic, run at sizes that break or keep the relations between them."""
