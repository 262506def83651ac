"""The language of commands, as far as it is read."""
