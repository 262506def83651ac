"""Starters of gateways for tests, which no installed gateway needs."""
