"""Acceptance tests of the context lane: over HTTP, through a whole gateway, to a model that follows a script."""
