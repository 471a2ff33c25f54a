"""Dead letters grouped by error, and the actions on many of them."""
