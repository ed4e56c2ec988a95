"""Near-identical answers."""
