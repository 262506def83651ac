"""The onion: stages folded around the model call."""
