"""The board: one page that shows whether the fleet is healthy."""
