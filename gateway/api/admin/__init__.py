"""The pages that show the gateway itself: its tools, its status, and whether its audit log is whole."""
