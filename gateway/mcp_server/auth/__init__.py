"""The callers of `/mcp`: the gateway's own keys, and access tokens of an issuer."""
