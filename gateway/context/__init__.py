"""The context lane."""
