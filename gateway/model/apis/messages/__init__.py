"""Anthropic's Messages: chat completion requests as messages of blocks, and their events as chunks."""
