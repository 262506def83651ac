"""The features that follow a passthrough exchange, a file each: usage, limits, traces."""
