"""The pages of Django admin: the board, and a folder for each kind of page."""
