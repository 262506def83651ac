"""Traces on their way to an OpenTelemetry collector, once their spans have ended."""
