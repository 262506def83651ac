"""`gateway limits`: shows what is used of the limits of a running gateway."""

from collections.abc import Iterator
from typing import Final

from gateway.approvals.escaping import escape_line
from gateway.cli.commands import Commands
from gateway.cli.formatting import View, list_lines, list_views
from gateway.cli.operator.arguments import add_asking, add_json_option
from gateway.cli.operator.remote import Remote

#: The command that this one follows in the help.
AFTER: Final = "keys"
PATH: Final = ("context", "limits")
_NAME_CHARS: Final = 60


def add_commands(commands: Commands) -> None:
    """Add `gateway limits`."""
    p = add_asking(
        commands,
        "limits",
        list_limits,
        "show what is used of the limits of keys, tenants, models and upstreams",
        example="gateway limits --json",
    )
    add_json_option(p)


def list_limits(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield one limit a line, or one JSON object. Raises RemoteError."""
    return list_lines(list_views(remote.get(*PATH).get("data")), _format_limit, as_json=as_json)


def _format_limit(view: View) -> Iterator[str]:
    whose = f"{view.get('scope')} {escape_line(str(view.get('name')), _NAME_CHARS)}"
    if (tenant := view.get("tenant")) not in (None, view.get("name")):
        whose += f" of {escape_line(str(tenant), _NAME_CHARS)}"
    resets_s = view.get("resets_in_s")
    rest = f", empty in {resets_s:g} s" if isinstance(resets_s, int | float) and resets_s else ""
    soft = ", soft" if view.get("soft") else ""
    over = f", {over} requests {'over it' if soft else 'refused'}" if (over := view.get("over")) else ""
    why = f"; it cannot be counted: {escape_line(str(obstacle))}" if (obstacle := view.get("obstacle")) else ""
    what = str(view.get("limit")).replace("_", " ")
    yield f"{whose}: {view.get('used')} of {view.get('most')} {what}{rest}{soft}{over}{why}"
