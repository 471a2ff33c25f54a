"""The admin: a board that answers "is it healthy?", and a room for each kind of page."""
