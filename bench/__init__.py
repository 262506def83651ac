"""The benchmark of `make bench`: the gateway beside nginx on one machine, in figures that can be compared."""
