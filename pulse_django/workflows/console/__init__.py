"""Workflows in the admin: the list, and the page of one with its graph."""
