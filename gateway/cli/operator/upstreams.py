"""`gateway upstreams`: shows which endpoints of a running gateway get requests, and why others do not."""

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.approvals.escaping import escape_line
from gateway.cli.commands import Commands
from gateway.cli.formatting import View, list_lines, list_views
from gateway.cli.operator.arguments import add_asking, add_json_option
from gateway.cli.operator.remote import Remote

PATH: Final = ("context", "upstreams")
_NAME_CHARS: Final = 100


def add(commands: Commands) -> None:
    """Add `gateway upstreams`."""
    p = add_asking(
        commands,
        "upstreams",
        list_upstreams,
        "show the upstreams, their endpoints, and how requests ended",
        example="gateway upstreams --json",
    )
    add_json_option(p)


def list_upstreams(remote: Remote, *, as_json: bool) -> Iterator[str]:
    """Yield an upstream with its endpoints, a line each, or one JSON object. Raises RemoteError."""
    return list_lines(list_views(remote.get(*PATH).get("data")), _format_upstream, as_json=as_json)


def _format_upstream(view: View) -> Iterator[str]:
    sent, retried = view.get("sent"), sum(_get_counts(view.get("retries")).values())
    told = [f"{sent} {'request' if sent == 1 else 'requests'} sent", f"{view.get('failed')} failed"]
    told += [f"{retried} retried"] if retried else []
    told += [f"{view[name]} {word}" for name, word in _PERHAPS.items() if view.get(name)]
    yield f"{escape_line(str(view.get('name')), _NAME_CHARS)}: {', '.join(told)}"
    yield from map(_format_endpoint, list_views(view.get("endpoints")))


#: Numbers of an upstream that are shown unless they are 0.
_PERHAPS: Final = {"not_sent": "refused", "queued": "waiting"}


def _format_endpoint(view: View) -> str:
    retry_s = view.get("retry_in_s")
    state = str(view.get("state")) + (f", tried again in {retry_s:g} s" if isinstance(retry_s, int | float) else "")
    parts = [f"  {escape_line(str(view.get('name')), _NAME_CHARS)}: {state}"]
    if (under_way := view.get("under_way")) is not None:
        tries, ejections = _get_counts(view.get("tries")), _get_counts(view.get("ejections"))
        parts.append(f"{under_way} under way")
        parts.append(f"{sum(tries.values())} tries, {tries.get('failed', 0)} failed")
        parts += [f"taken out: {sum(ejections.values())}"] if ejections else []
        parts += [f"answers {counts}, the last {view.get('last_status')}"] if (counts := _count_answers(view)) else []
    return "; ".join(parts)


def _count_answers(view: View) -> str:
    """Return how many answers had which status; "": all of them were good."""
    answers = _get_counts(view.get("answers"))
    if all(status.startswith("2") for status in answers):
        return ""
    return ", ".join(f"{count} x {escape_line(status, _NAME_CHARS)}" for status, count in sorted(answers.items()))


def _get_counts(value: object) -> Mapping[str, int]:
    return value if isinstance(value, dict) else {}
