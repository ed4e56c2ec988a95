"""What course.yml says, and the course's secret."""
