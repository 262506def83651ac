"""Tests of `gateway.testing`."""
