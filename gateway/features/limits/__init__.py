"""Limits: what keys, tenants, models and upstreams may use in a minute, at a time, in a day and in a month."""
