"""One submission: its cells run, its answers asked, its verdicts reached."""
