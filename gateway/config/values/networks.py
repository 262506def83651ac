"""Networks as the configuration spells them: `10.0.0.0/8`, `2001:db8::/32`, or one address."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated

from gateway.config.values.scalars import parse_text
from gateway.config.values.value import ValueType

_EXPECTED = "expected a network such as 10.0.0.0/8 or 2001:db8::/32, or one address"


def parse_network(value: object) -> IPv4Network | IPv6Network:
    """Return the network of a text. Raises ValueError for one with bits behind its prefix, which would be guessed."""
    text = parse_text(value)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("clients of IPv4 are known by their IPv4 address: write the network without ::ffff:")
    if "/" in text and str(network.network_address) != text.partition("/")[0].lower():
        raise ValueError(f"has bits behind its prefix, or an unusual form: write {network}")
    return network


Network = Annotated[IPv4Network | IPv6Network, ValueType(kind="network", parse=parse_network, write=str)]
