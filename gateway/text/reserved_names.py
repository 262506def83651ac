"""Names that no service may have: the names of the gateway itself, of its built-in tools, and of other services.

A name is a part of the path of the service's pages, so a name that would lead elsewhere is refused.

A name is refused in all of its spellings. A service whose name begins another's (`git` and `git.hub`) is refused, too:
`git.hub.find` would be a tool of either.
"""

import re
from collections.abc import Mapping
from typing import Final

from gateway.plugins import list_built_in_plugins
from gateway.text.confusables import compute_skeleton
from gateway.text.names import find_hidden_character, find_mixed_scripts

#: The label of the gateway's own tools, its built-in tools, and the tools that stand for a long list of them.
RESERVED: Final[Mapping[str, str]] = {
    compute_skeleton(name): name
    for name in ("gateway", *list_built_in_plugins("tools"), "read_result", "find_tools", "call_tool")
}
_JOINT: Final = "__"
#: Text that changes the path that it stands in, in any decoder.
_ELSEWHERE: Final = re.compile(r"[\\%{}]")
#: The page of all services, beside the endpoint of each one.
_PAGE: Final = "services"


class ServiceNames:
    """The names of services that were added so far: each means one service, inside and towards models."""

    def __init__(self) -> None:
        self._spelled: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._begins: dict[str, str] = {}

    def find_problem(self, name: str) -> str | None:
        """Return why a new service may not have a name; None: it may."""
        if (unfit := _find_unfit_reason(name)) is not None:
            return f"the name {name!a} {unfit}"
        spelled = compute_skeleton(name)
        if (reserved := RESERVED.get(spelled)) is not None:
            what = "is" if name == reserved else f"imitates {reserved!r}, which is"
            return f"the name {name!a} {what} the gateway's own"
        if (other := self._spelled.get(spelled)) is not None:
            return f"the name {name!a} imitates that of the service {other!a}"
        if (alike := find_mixed_scripts(name)) is not None:
            return f"the name {name!a} {alike}"
        other = self._begins.get(_fold_name(name)) or next(
            filter(None, map(self._names.get, _list_prefixes(name))), None
        )
        if other is None:
            return None
        return (
            f"tools of {name!a} may have the names of tools of the service {other!a}, because one name "
            "begins with the other"
        )

    def add(self, name: str) -> None:
        """Add the name of a service."""
        self._spelled[compute_skeleton(name)] = self._names[_fold_name(name)] = name
        self._begins.update(dict.fromkeys(_list_prefixes(name), name))


def _find_unfit_reason(name: str) -> str | None:
    """Return why a name cannot be that of a service; None: it can."""
    if (unseen := find_hidden_character(name)) is not None:
        return unseen
    if _ELSEWHERE.search(name) or not all(part.strip(".") for part in name.split("/")):
        return "cannot stand in the path of a page: it has one of \\ % { }, or a part of dots only"
    return f"is that of the page /mcp/{_PAGE}" if name == _PAGE else None


def _fold_name(name: str) -> str:
    return name.casefold().replace(".", _JOINT)


def _list_prefixes(name: str) -> list[str]:
    """Return the names of services whose tools may be called like tools of this one."""
    head = _fold_name(name) + _JOINT
    return [head[:i] for i in range(1, len(head) - len(_JOINT)) if head.startswith(_JOINT, i)]
