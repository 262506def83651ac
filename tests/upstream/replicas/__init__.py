"""Tests of the workers of gateways on one store."""
