"""What `make bench` runs: the gateway beside nginx on one machine, in figures that can be compared."""
