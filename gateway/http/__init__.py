"""HTTP/1.1 as bytes, without sockets."""
