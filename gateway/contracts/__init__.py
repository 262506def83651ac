"""The nouns of the gateway and its extension points. Plugins import them from `gateway.plugin`."""
