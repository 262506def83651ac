"""Twolane: an OpenAI-compatible gateway with a byte-exact passthrough lane and a context lane on one base URL."""

__version__ = "0.1.0"
