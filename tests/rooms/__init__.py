"""Rooms from outside: capabilities that the package does not know, written as a project would write them."""
