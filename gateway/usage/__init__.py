"""Usage: the tokens that upstreams report, what they cost, and the ledger of who used them."""
