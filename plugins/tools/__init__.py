"""Plugins of the kind tools. The file name is the plugin's name."""
