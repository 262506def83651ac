"""The upstream that a target belongs to: by prefix of the raw path, the longest first.

A path is forwarded as it came, and an upstream may tidy it up: so one that could then lead out of its prefix is not
under it, however its dots and slashes are written.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.lanes.path_normalization import may_leave_root

#: Names behind `/v1/` in the API's paths: the commonest mistake in a base URL (no `/v1`) is served as what was meant.
COLLECTIONS = frozenset(
    (
        *(b"assistants", b"audio", b"batches", b"chat", b"completions", b"containers", b"conversations", b"embeddings"),
        *(b"evals", b"files", b"fine_tuning", b"images", b"messages", b"models", b"moderations", b"realtime"),
        *(b"responses", b"threads", b"uploads", b"vector_stores", b"videos"),
    )
)
#: Segments with which the paths of the API begin.
_BEGINNINGS = (b"v1", b"deployments")


@dataclass(frozen=True, slots=True)
class Route:
    """Targets under `prefix` go to the upstream at `index`; the path is compared as it came, nothing is decoded.

    `by_model`: unless the model of the request names another one.
    """

    prefix: bytes
    index: int
    by_model: bool = False

    def matches(self, target: bytes) -> bool:
        """Return whether a target begins with the prefix, at a segment, and does not climb out of it."""
        if not target.startswith(self.prefix):
            return False
        rest = target[len(self.prefix) :]
        return (self.prefix.endswith(b"/") or rest[:1] in (b"", b"/", b"?")) and not may_leave_root(get_path(rest))

    def get_api_path(self, path: bytes) -> bytes:
        """Return a path that matches as the API's own, without what the prefix has before it.

        `/rented/v1/models` is `/v1/models` if the prefix is `/rented/v1/` or `/rented`.
        """
        segments = self.prefix.rstrip(b"/").split(b"/")
        own = max((n for n, one in enumerate(segments) if one in _BEGINNINGS), default=len(segments))
        return path[len(b"/".join(segments[:own])) :]

    def rewrite_target(self, target: bytes, base_path: bytes) -> bytes:
        """Return the target for the upstream: unchanged, or with `base_path`, if there is one, in place of the prefix.

        Of a prefix that names a part of the API (`/v1/embeddings`) it stands in place of `/v1`: base URLs end there.
        """
        if not base_path:
            return target
        version, _, rest = self.prefix[1:].partition(b"/")
        part_of_api = version == b"v1" and rest.split(b"/", 1)[0] in COLLECTIONS
        return base_path + target[len(b"/v1" if part_of_api else self.prefix.rstrip(b"/")) :]


class RouteTable:
    """The passthrough routes of one configuration."""

    def __init__(self, routes: Iterable[Route]) -> None:
        # A stable sort: of two equal prefixes the first configured one wins.
        self._routes = tuple(sorted(routes, key=lambda route: -len(route.prefix)))

    def match(self, target: bytes) -> Route | None:
        return next((route for route in self._routes if route.matches(target)), None)


def get_path(target: bytes) -> bytes:
    """Return the raw path, without the query."""
    return target.split(b"?", 1)[0]


def resolve_alias(target: bytes) -> bytes:
    """Return the target meant: `/v1` before a path of the API that lacks it, also under `/context`. The rest stays
    byte for byte."""
    first, _, rest = get_path(target)[1:].partition(b"/")
    if first in COLLECTIONS:
        return b"/v1" + target
    if first == b"context" and rest.split(b"/", 1)[0] in COLLECTIONS:
        return b"/context/v1" + target[len(b"/context") :]
    return target
