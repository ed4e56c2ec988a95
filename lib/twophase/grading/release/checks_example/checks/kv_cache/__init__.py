"""An exercise of our own for chapter 3, after the course's. Its check goes out with the release."""

ORDER = ("send_s",)
