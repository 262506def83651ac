"""The gateway as its clients and its upstreams see it: real sockets, exact bytes."""
