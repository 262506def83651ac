"""Tests of `gateway.server.lanes`."""
