"""The nouns of the gateway and its extension points."""
