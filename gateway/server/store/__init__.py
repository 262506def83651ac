"""The store of a worker: how it is opened, and its clock."""
