"""The reading of bytes into values with their places."""
