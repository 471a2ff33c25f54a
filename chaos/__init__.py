"""Proof that Pulse keeps its promise: real workers, real misfortune, a history, and a checker that trusts nobody."""
