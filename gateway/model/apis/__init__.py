"""The APIs that models speak, a folder each: the request of an exchange, and its answer as chunks."""
