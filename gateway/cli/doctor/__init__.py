"""`gateway doctor`: the configuration, and what it stands on, looked at once by real probes."""
