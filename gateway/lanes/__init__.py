"""The client's side: who owns the connection, which lane a request takes, and the lanes themselves."""
