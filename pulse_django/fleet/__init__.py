"""The state of the fleet: facts, history, conditions, alerts, advice. Only repairs and given-up tasks change jobs."""
