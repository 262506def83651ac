"""Hold the files that `gateway plugin new` writes: for each kind a plugin, its test and lines for gateway.yaml."""
