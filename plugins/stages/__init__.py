"""Plugins of the kind stages; the file name is the plugin's name."""
