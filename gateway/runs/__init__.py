"""Runs: their live answers, their leases, their records in the store, and the event feed."""
