"""Tests of the console's pages."""
