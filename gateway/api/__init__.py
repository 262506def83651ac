"""The gateway's own HTTP API."""
