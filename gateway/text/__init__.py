"""Words in what people typed."""
