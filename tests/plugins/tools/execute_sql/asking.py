"""The request in which statements are asked for."""

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
