"""The configuration of a LiteLLM proxy as one of the gateway's own."""
