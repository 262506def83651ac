"""Workers of this gateway and of others on one store: where they are, and requests between them."""
