"""Real client libraries and programs, driven through a running gateway."""
