"""Plugins of the kind stores; the file name is the plugin's name."""
