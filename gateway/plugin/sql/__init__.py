"""The language of SQL, as far as it is read."""
