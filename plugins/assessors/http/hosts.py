"""The kind of a host in a URL, in any spelling: public, inside a private network, or a metadata service.

Only the spelling is judged. The addresses of a name are checked by the tool that connects.
"""

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.plugin import METADATA_NETWORKS
from gateway.plugin.word_lists import split_words

Reach: TypeAlias = Literal["public", "private", "metadata", "unclear"]
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NAMES = split_words("""
    metadata metadata.google.internal metadata.goog instance-data instance-data.ec2.internal metadata.azure.internal
    metadata.azure.com metadata.tencentyun.com metadata.packet.net metadata.platformequinix.com rancher-metadata
    metadata.oraclecloud.com metadata.ec2.internal api.metadata.cloud.ibm.com
""")
_PRIVATE_SUFFIXES = tuple(
    split_words("""
    .localhost .local .internal .intranet .lan .home .corp .private .localdomain .home.arpa .svc .cluster.local
    .docker .test.local .lvh.me .localtest.me .vcap.me
""")
)
_PRIVATE_NAMES = frozenset({"lvh.me", "localtest.me", "vcap.me", "kubernetes.default", "home.arpa"})
#: Public names that resolve to the address they spell.
_WILDCARD_DNS = tuple(split_words(".nip.io .sslip.io .xip.io .traefik.me .backname.io .ip6.name"))
_SPELLED = re.compile(r"(?<![0-9])((?:[0-9]{1,3}[.-]){3}[0-9]{1,3})(?![0-9])")
_HEX_LABEL = re.compile(r"(?:^|[.-])([0-9a-f]{8})(?=[.-])")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: Of a network's own translators (RFC 8215), which may use any of the layouts of RFC 6052.
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
#: Bits below the IPv4 address in such an address after prefixes of 48, 56 and 64 bits, without its octet that stays
#: free (bits 64 to 71; RFC 6052, section 2.2).
_BITS_BELOW = (40, 32, 24)
MAX_CHARS = 253
_MAX_NUMBER_CHARS = 40  # 2**32 in octal with room for leading zeros; int() is quadratic


@dataclass(frozen=True, slots=True)
class UrlHost:
    """One host. `name` is in lower case, without a trailing dot. An address is in its usual form.

    `disguised`: an address in a spelling that people do not use (2130706433, 0x7f.1, 127.1).
    """

    name: str
    reach: Reach
    disguised: bool = False


UNCLEAR = UrlHost("", "unclear")


def classify(text: str) -> UrlHost:
    """Classify the host part of a URL (without port and user-info, with the brackets of IPv6). Never raises."""
    if text.startswith("["):
        return _parse_bracketed(text)
    name = _normalize_name(text)
    if name is None:
        return UNCLEAR
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _classify_numeric(name, labels, disguised=not text.isascii())
    if not all(_is_label(label) for label in labels):
        return UNCLEAR
    return UrlHost(name, _classify_name(name, labels))


def classify_address(address: Address) -> Reach:
    """Return the kind of an address, also of one that is wrapped in an IPv6 address."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    found = {_classify_one(each) for each in ((mapped,) if mapped else (address, *_extract_ipv4(address)))}
    order: tuple[Reach, ...] = ("metadata", "private", "public")
    return next(reach for reach in order if reach in found)


def _classify_one(address: Address) -> Reach:
    if any(address in network for network in METADATA_NETWORKS):
        return "metadata"
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return "public" if address.is_global and not address.is_multicast and not site_local else "private"


def _extract_ipv4(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    # Compatible (::a.b.c.d), translated (64:ff9b::) and ISATAP (::5efe:a.b.c.d) addresses end in the IPv4 address.
    compatible = 0xFFFF < int(address) < 1 << 32
    isatap = (int(address) >> 32) & 0xFFFFFFFF in (0x5EFE, 0x02005EFE)
    translated = int(address) >> 32 == 0xFFFF0000  # ::ffff:0:a.b.c.d (RFC 2765)
    found = [low] if address in _NAT64 or compatible or isatap or translated else []
    if address in _LOCAL_NAT64:
        found += _extract_prefixed_ipv4(int(address))
    teredo = address.teredo
    return found + [each for each in (address.ipv4_mapped, address.sixtofour, *(teredo or ())) if each is not None]


def _extract_prefixed_ipv4(address: int) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that prefixes of 48, 56, 64 and 96 bits leave in an IPv6 address."""
    without_free = (address >> 64 << 56) | (address & (1 << 56) - 1)  # 120 bits
    values = [(without_free >> bits) & 0xFFFFFFFF for bits in _BITS_BELOW]
    return [ipaddress.IPv4Address(value) for value in (*values, address & 0xFFFFFFFF)]


def _parse_bracketed(text: str) -> UrlHost:
    inside = text[1:-1]
    if not text.endswith("]") or len(inside) > MAX_CHARS or "%" in inside:
        return UNCLEAR
    try:
        address = ipaddress.IPv6Address(inside)
    except ValueError:
        return UNCLEAR
    return UrlHost(str(address), classify_address(address), disguised=bool(_extract_ipv4(address)))


def _normalize_name(text: str) -> str | None:
    """Return the name in lower case, in the letters that name resolution sees. None: programs read it differently."""
    if not text or len(text) > MAX_CHARS:
        return None
    name = text
    if not text.isascii():
        if not all(char in "-._。．｡" or unicodedata.category(char)[0] in "LMN" for char in text):
            return None
        name = unicodedata.normalize("NFKC", text).replace("。", ".")
        if any(char in "/?#@:%\\[] " for char in name):
            return None
    name = name.lower().removesuffix(".")
    # Letters that turn into ASCII hide what the name is, unless it turns out to be an address, which is judged.
    if name.isascii() and not text.isascii() and not _NUMBER.fullmatch(name.rsplit(".", 1)[-1]):
        return name if name in _METADATA_NAMES else None
    return name


def _is_label(label: str) -> bool:
    if label.isascii():
        return _LABEL.fullmatch(label) is not None
    return len(label) <= 63 and all(char in "-_" or unicodedata.category(char)[0] in "LMN" for char in label)


def _classify_numeric(name: str, labels: list[str], *, disguised: bool) -> UrlHost:
    """Classify an IPv4 address in any spelling that some resolver takes: each part decimal, octal or hexadecimal."""
    if len(labels) > 4 or any(not _NUMBER.fullmatch(label) or len(label) > _MAX_NUMBER_CHARS for label in labels):
        return UNCLEAR
    found: list[UrlHost] = []
    for octal in (True, False):  # 0251 is 169 to most, 251 to some
        value = _compute_address_value([_parse_part(label, octal=octal) for label in labels])
        if value is None:
            continue
        address = ipaddress.IPv4Address(value)
        found.append(UrlHost(str(address), classify_address(address), disguised=disguised or str(address) != name))
    if not found:
        return UNCLEAR
    if len({host.name for host in found}) > 1:
        found = [UrlHost(host.name, host.reach, disguised=True) for host in found]
    order: tuple[Reach, ...] = ("metadata", "private", "public")
    return min(found, key=lambda host: order.index(host.reach))


def _parse_part(label: str, *, octal: bool) -> int | None:
    try:
        if label.startswith("0x"):
            return int(label[2:] or "0", 16)
        return int(label, 8) if octal and label.startswith("0") else int(label)
    except ValueError:
        return None


def _compute_address_value(parts: list[int | None]) -> int | None:
    """Return the number of an address as inet_aton reads it: the last part fills the rest.

    None: a part is too large.
    """
    value = 0
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        bits = 8 * (4 - index) if last else 8
        if part is None or part >= 1 << bits:
            return None
        value = (value << bits) | part
    return value


def _classify_name(name: str, labels: list[str]) -> Reach:
    if name in _METADATA_NAMES or (labels[0] == "metadata" and name.endswith(".internal")):
        return "metadata"
    if name.endswith(_WILDCARD_DNS):
        return _classify_wildcard_name(name)
    if len(labels) == 1 or name in _PRIVATE_NAMES or name.endswith(_PRIVATE_SUFFIXES):
        return "private"
    return "public"


def _classify_wildcard_name(name: str) -> Reach:
    reaches: list[Reach] = []
    for match in _SPELLED.finditer(name):
        value = _compute_address_value([int(part) for part in re.split("[.-]", match.group(1))])
        if value is not None:
            reaches.append(classify_address(ipaddress.IPv4Address(value)))
    reaches += [classify_address(ipaddress.IPv4Address(int(match.group(1), 16))) for match in _HEX_LABEL.finditer(name)]
    return "metadata" if "metadata" in reaches else "private"
