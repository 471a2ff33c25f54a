"""How the fleet is: its facts, its history, what is wrong with it and what to do. Nothing here changes a job."""
