"""Runs: the agent loop as a state machine, and what is kept of it."""
