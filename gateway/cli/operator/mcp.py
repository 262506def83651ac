"""`gateway mcp`: asks a running gateway which MCP services there are, registers them, and stops and starts them.

What a server wrote is escaped: no terminal obeys it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.approvals.escaping import shown, shown_name
from gateway.cli.formatting import CommandError, View, views, word
from gateway.cli.operator.remote import Remote

PATH: Final = ("mcp", "services")
_LINE_CHARS = 200
# As long as an error of a service is, with the last line of its program.
_ERROR_CHARS = 500


def listed(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield all services. Raises RemoteError."""
    found = list(remote.entries(*PATH))
    if as_json:
        yield from map(json.dumps, found)
        return
    for view in found:
        yield from _summary(view)
    if not found:
        yield "none"


def added(remote: Remote, name: str, *, settings: Mapping[str, object]) -> Iterator[str]:
    """Add a service and yield it: it is starting. Raises RemoteError."""
    yield from _summary(remote.begin(*PATH, body={**settings, "name": name}, wait=True))


def operated(remote: Remote, name: str, what: str) -> Iterator[str]:
    """Start, stop or restart a service and yield it. Raises RemoteError."""
    yield from _summary(remote.post(*PATH, name, what))


def tools(remote: Remote, name: str, *, as_json: bool) -> Iterator[str]:
    """Yield the tools of a service. Raises RemoteError, and CommandError if it has none because it does not run."""
    found = views(remote.get(*PATH, name, "tools").get("data"))
    if not found:
        _check_runs(name, remote.get(*PATH, name))
    if as_json:
        yield from map(json.dumps, found)
        return
    for view in found:
        yield from _tool(view)
    if not found:
        yield "none: the service runs, and lists no tools"


def accepted(remote: Remote, name: str, *, wanted: Sequence[str]) -> Iterator[str]:
    """Accept tools as they are now, these or all that changed, and yield them. Raises CommandError."""
    found = {str(view.get("name")): view for view in views(remote.get(*PATH, name, "tools").get("data"))}
    for tool in wanted:
        if tool not in found:
            raise CommandError(f"the service {name!r} has no tool {tool!r} just now: gateway mcp tools {name!r}")
    chosen = {tool: view for tool, view in found.items() if tool in wanted or (not wanted and view.get("changed"))}
    if not chosen:
        yield "nothing to accept: no tool has changed"
        return
    remote.post(*PATH, name, "accept", tools={tool: view.get("sha256") for tool, view in chosen.items()})
    for view in chosen.values():
        yield from _tool({**view, "changed": False})


def removed(remote: Remote, name: str) -> Iterator[str]:
    """Remove a service. Raises RemoteError."""
    remote.delete(*PATH, name)
    yield f"{shown_name(name)}  removed"


def _check_runs(name: str, view: View) -> None:
    """Raise CommandError unless the service runs."""
    if view.get("state") == "running":
        return
    why = f": {shown(str(view['error']), _ERROR_CHARS)}" if view.get("error") else ""
    next_step = (
        f"gateway mcp start {name!r}" if view.get("state") == "stopped" else "gateway mcp list says how it goes on"
    )
    raise CommandError(f"the service {name!r} does not run (state {word(view, 'state')}){why}; {next_step}")


def _summary(view: View) -> Iterator[str]:
    count = view.get("tools")
    facts = [word(view, "source"), word(view, "transport"), f"{count} tool{'' if count == 1 else 's'}"]
    if view.get("restarts"):
        facts.append(f"restarted {word(view, 'restarts')} times by itself")
    yield f"{shown_name(str(view.get('name')))}  {word(view, 'state')}  {', '.join(facts)}"
    if view.get("error"):
        yield f"  {shown(str(view['error']), _ERROR_CHARS)}"
    changed = view.get("changed")
    if isinstance(changed, list) and changed:
        names = ", ".join(shown_name(str(tool)) for tool in changed)
        yield f"  changed since they were accepted: {names}; gateway mcp tools, gateway mcp accept"


def _tool(view: View) -> Iterator[str]:
    mark = "  changed since it was accepted: each call asks a person" if view.get("changed") else ""
    yield f"{shown_name(str(view.get('name')))}  {word(view, 'sha256')}{mark}"
    if view.get("description"):
        yield f"  {shown(str(view['description']), _LINE_CHARS)}"
