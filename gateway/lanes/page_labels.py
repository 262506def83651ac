"""The labels of requests for our own pages in metrics: answers to clients apart from what programs ask all the time."""

from gateway.dialects.registry import COLLECTIONS, ENDPOINTS

#: Ends of the paths at which a model answers.
_CHAT = (*(b"/" + endpoint.encode() for endpoint in ENDPOINTS.values()), b"/responses/compact")
#: Paths at which a model answers in the context lane.
CHAT_PATHS = frozenset(b"/context/v1" + end for end in _CHAT)
_WATCHED = frozenset((b"/", b"/metrics", b"/health/live", b"/health/ready"))
_CONSOLE = b"/console"
_POLLED = (b"/context/runs", b"/context/approvals", b"/context/ws")
#: Beginnings of paths, as spans name them.
_PAGES = frozenset(
    b"/context/" + name
    for name in (
        *(b"approvals", b"asks", b"audit", b"explain", b"grants", b"keys", b"limits", b"memories", b"runs", b"tools"),
        *(b"upstreams", b"usage", b"ws"),
    )
)
_AT_THE_TOP = (b"/mcp", b"/workflows")
_STORED = tuple(b"/" + name.encode() + b"/" for name in COLLECTIONS)


def get_page_labels(path: bytes) -> tuple[str, str]:
    """Return route and mode: `chat` of the lane `context`; `health`, `polling`, `console` or `pages` of `own`.

    `health` is for monitoring. `polling` is where clients look again and again, or listen: runs, approvals, events,
    stored responses.
    """
    if path.removesuffix(b"/").endswith(_CHAT):
        return "chat", "context"
    if path in _WATCHED:
        return "health", "own"
    if path == _CONSOLE or path.startswith(_CONSOLE + b"/"):
        return "console", "own"
    polled = path.startswith(_POLLED) or any(stored in path for stored in _STORED)
    return "polling" if polled else "pages", "own"


def find_page_name(path: bytes) -> str | None:
    """Return the name, of a closed set, of the gateway's page at a path; None: it has none.

    A path at which a model answers is one as a whole.
    """
    if (whole := path.removesuffix(b"/")) in CHAT_PATHS:
        return whole.decode()
    for page in _AT_THE_TOP:
        if path == page or path.startswith(page + b"/"):
            return page.decode()
    begin = b"/".join(path.split(b"/", 3)[:3])
    return begin.decode() if begin in _PAGES else None
