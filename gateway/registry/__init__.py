"""Plugins by their names."""
