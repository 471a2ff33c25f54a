"""The pages of tasks: the list of all, and one for each, with charts."""
