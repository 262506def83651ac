"""OpenAI's Responses: chat completion requests as items, and the events of responses as chunks."""
