"""Tests of `gateway.lanes`."""
