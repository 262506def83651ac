"""Tests of `gateway.upstream`."""
