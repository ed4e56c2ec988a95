"""From results to what a student gets: lateness, drops, overrides, totals."""
