"""Spans, their maker, and trace context as headers carry it (W3C Trace Context)."""
