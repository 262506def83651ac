"""Plugins of the kind stores. The file name is the plugin's name."""
