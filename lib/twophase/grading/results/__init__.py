"""What grading found: a grade, a record, and results.jsonl."""
