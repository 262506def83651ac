"""The upstream side of the passthrough lane: endpoints, and raw keep-alive connections to them."""
