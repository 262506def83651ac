"""The lanes of one worker from its configuration: routes, keys, limits, and the upstreams that both lanes share."""
