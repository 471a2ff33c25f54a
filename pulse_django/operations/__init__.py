"""What operators do to many jobs at a time. The commands print it and the admin shows it."""
