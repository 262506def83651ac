"""Tools: the catalog, the permission to use them, and the judging and running of a call."""
