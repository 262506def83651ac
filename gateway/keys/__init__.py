"""Keys that are made at run time: what they may do, how they are made, and which of them this worker accepts."""
