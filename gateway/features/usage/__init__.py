"""Usage: the tokens of requests, recorded by who used them, and what they cost."""
