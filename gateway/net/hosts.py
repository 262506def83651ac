"""Hosts by their one spelling."""

import ipaddress

from yarl import URL


def parse_allowed_host(text: str) -> tuple[str, int | None]:
    """Return a host of an allow-list: its plain name, and the port if it names one. Raises ValueError."""
    try:
        url = URL(f"https://{text}")
        if url.host and url.raw_path == "/" and url.user is None and not url.query_string and url.port:
            return normalize_host(url.host), url.explicit_port
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a host such as api.example.com, 10.0.0.7:8080 or [::1]:8080")


def normalize_host(host: str) -> str:
    """Return the one spelling of a host that others are compared with."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return URL.build(scheme="http", host=host.rstrip(".").lower()).raw_host or ""
