"""This project, its floor and its peers side by side: what each needs, how it is measured, what came of it."""
