"""The choice of the endpoints of a passthrough request: one, by failover, by hedging, by the model."""
