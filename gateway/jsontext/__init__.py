"""JSON as text: strict reading, and counts of values."""
