"""Tests of `gateway.lanes.passthrough.dispatch`."""
