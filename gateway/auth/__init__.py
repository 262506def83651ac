"""Gateway keys: the caller of a request, the rights of a key, and the hosts and origins that the gateway serves."""
