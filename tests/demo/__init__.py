"""Tests of `gateway.demo`."""
