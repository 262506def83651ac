"""Bounds of what one client of the endpoint may take, so that the others are served."""
