"""Our own pages in a worker: chats from its start, all others from their first request on."""
