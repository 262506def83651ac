"""Requests as model servers take them: the quirks that refusals teach, and the ways to rewrite a request for them."""
