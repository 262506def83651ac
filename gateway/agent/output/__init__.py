"""What a model's answer says."""
