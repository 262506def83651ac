"""The output of a model: its text, its thoughts and its tool calls."""
