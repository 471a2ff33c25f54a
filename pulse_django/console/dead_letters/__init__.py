"""Dead letters by what killed them, and what may be done to many of them."""
