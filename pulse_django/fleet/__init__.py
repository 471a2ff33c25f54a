"""How the fleet is: its facts, its history, what is wrong with it, and what to do about it. Nothing here changes a job."""
