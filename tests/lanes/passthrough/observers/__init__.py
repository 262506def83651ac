"""Tests of `gateway.lanes.passthrough.observers`."""
