"""Bytes to meaning and back, without sockets: heads, bodies, answers."""
