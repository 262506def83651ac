"""The sections of gateway.yaml."""
