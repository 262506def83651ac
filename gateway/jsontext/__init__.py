"""JSON as text: strict reading, the canonical form, and counts of values."""
