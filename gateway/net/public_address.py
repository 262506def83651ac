"""Kinds of IP addresses: public ones, and the ones where credentials of the machine are handed out.

Only the public ones are for a tool that untrusted text can steer.

The address of a socket is judged, not the text of a URL, so the spelling in a URL does not matter.
"""

import ipaddress
from typing import Final

#: Link-local networks, where clouds and containers hand out credentials, and the same services elsewhere.
METADATA_NETWORKS: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google
        "168.63.129.16/32",  # Azure
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
    )
)
# Addresses that `ipaddress` calls global, and which lead into the machine, its network or its provider's all the same.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's agent on every virtual machine
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata is 192.0.0.192
        "192.88.99.0/24",  # relays of 6to4, given up by RFC 7526
        "2002::/16",  # 6to4 itself: an IPv4 address, of any kind, in disguise
        "2001::/32",  # Teredo: the same
        "3fff::/20",  # documentation (RFC 9637)
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(host: str) -> bool:
    """Return whether the host of a socket address is public unicast, and so is an IPv4 address that it carries."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.ipv4_mapped is not None:
            return _is_public(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST:
            return False
    return _is_public(address)


def is_metadata(host: str) -> bool:
    """Return whether the host of a socket address hands out credentials of the machine, or carries one that does."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            address = address.ipv4_mapped or address
    return any(address in network for network in METADATA_NETWORKS)


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in network for network in _NOT_PUBLIC)
