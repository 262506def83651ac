"""What plugins import."""
