"""Tests of `gateway.lanes.passthrough`."""
