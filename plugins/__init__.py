"""Plugins of the context lane: the file name is the plugin's name (docs/architecture.md)."""
