"""What students are given: made, searched for what it must not hold, and read again to grade."""
