"""The pages of limits."""
