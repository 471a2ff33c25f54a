"""The board: one page that answers "is it healthy?"."""
