"""Gateway keys: who a request comes from, what a key may do, and which hosts and origins may ask."""
