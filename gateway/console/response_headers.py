"""The header fields of every page of the console: nothing from elsewhere runs, nothing frames it, nothing stores it.

Scripts and styles need the nonce of their answer (https://www.w3.org/TR/CSP3/#match-nonces). A path of this origin is
not enough: passthrough serves there what an upstream answers.
"""

import secrets
from collections.abc import Mapping

from aiohttp import web

#: Where a browser announces that it shows a page inside another one (https://www.w3.org/TR/fetch-metadata/).
FRAMES = frozenset(("iframe", "frame", "embed", "object", "fencedframe"))


def generate_nonce() -> str:
    """Return a nonce for one answer."""
    return secrets.token_urlsafe(16)


def build_page_headers(nonce: str) -> Mapping[str, str]:
    """Return the header fields of a page whose script and style elements carry `nonce`."""
    return {
        "Content-Security-Policy": "; ".join(
            (
                "default-src 'none'",
                f"script-src 'nonce-{nonce}'",
                f"style-src 'nonce-{nonce}'",
                "img-src 'self'",
                "connect-src 'self'",
                "form-action 'self'",
                "base-uri 'none'",
                "frame-ancestors 'none'",
            )
        ),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        # Not `no-referrer`: with that a browser sends `Origin: null` with our own forms.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def is_framed(request: web.Request) -> bool:
    """Return whether a browser requests the page to show it inside another one."""
    return request.headers.get("Sec-Fetch-Dest", "").strip().lower() in FRAMES


def is_of_another_page(request: web.Request) -> bool:
    """Return whether a request comes from a page of another site, unless a person follows a link.

    The host guard lets pages in `cors` call the API. They have no part in the session of a person.
    """
    if request.headers.get("Sec-Fetch-Site", "").strip().lower() in ("", "same-origin", "none"):
        return False
    ways = [request.headers.get(name, "").strip().lower() for name in ("Sec-Fetch-Mode", "Sec-Fetch-Dest")]
    return request.method not in ("GET", "HEAD") or ways != ["navigate", "document"]
