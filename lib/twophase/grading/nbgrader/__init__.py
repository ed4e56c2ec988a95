"""nbgrader: its course, its gradebook, its feedback."""
