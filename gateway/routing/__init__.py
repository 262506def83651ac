"""Pure decisions about a request: which route, which lane, whose key."""
