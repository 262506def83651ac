"""The passthrough lane: one request relayed over one upstream connection, with a dispatcher and observers."""
