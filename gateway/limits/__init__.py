"""Limits: what callers may use of the gateway in a minute, at a time, in a day and in a month."""
