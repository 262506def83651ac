"""Traces: spans of requests, for an OpenTelemetry collector."""
