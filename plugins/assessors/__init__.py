"""Plugins of the kind assessors; the file name is the plugin's name."""
