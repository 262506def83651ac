"""From bytes to values with their places."""
