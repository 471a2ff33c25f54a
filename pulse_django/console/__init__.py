"""What the admin shows beside rows: the story of a job, and lists that open at once however long they are."""
