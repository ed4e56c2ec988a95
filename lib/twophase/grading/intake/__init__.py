"""What was handed in: which files are submissions, whose they are, and when they came."""
