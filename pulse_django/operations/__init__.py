"""What operators do to many jobs at a time, and what they ask: the commands print it, the admin shows it."""
