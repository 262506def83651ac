"""Traces: the spans of requests, runs, model calls and tools, and how they leave for an OpenTelemetry collector."""
