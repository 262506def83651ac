"""Single values."""
