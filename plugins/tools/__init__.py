"""Plugins of the kind tools; the file name is the plugin's name."""
