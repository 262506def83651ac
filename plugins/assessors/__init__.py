"""Plugins of the kind assessors. The file name is the plugin's name."""
