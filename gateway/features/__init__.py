"""Features, a folder each: everything of one, from its section of the configuration to its page and its command."""
