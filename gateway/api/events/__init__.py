"""The events of runs and approvals, as they come."""
