"""Plugins of the kind stages. The file name is the plugin's name."""
