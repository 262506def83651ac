"""`gateway usage`: shows the tokens that a running gateway counted, and their cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.approvals.escaping import escape_line
from gateway.cli.commands import Commands
from gateway.cli.formatting import View, list_lines, list_views
from gateway.cli.operator.arguments import add_asking, add_json_option
from gateway.cli.operator.remote import Remote
from gateway.contracts.storage.usage import COUNTS, DIMENSIONS

#: The command that this one follows in the help.
AFTER: Final = "upstreams"
PATH: Final = ("context", "usage")
_NAME_CHARS: Final = 60


def add_commands(commands: Commands) -> None:
    """Add `gateway usage`."""
    p = add_asking(
        commands,
        "usage",
        list_usage,
        "show who used how many tokens, and what they cost",
        example="gateway usage --by key,model --from 2026-11-01",
    )
    p.add_argument("--from", dest="since", metavar="DAY", help="first day in UTC (default: 30 days up to the last one)")
    p.add_argument("--to", dest="until", metavar="DAY", help="last day (default: today)")
    text = f"sum by some of {', '.join(DIMENSIONS)}, with commas between them (default: day)"
    p.add_argument("--by", default="day", metavar="NAMES", help=text)
    add_json_option(p)


def list_usage(remote: Remote, *, since: str | None, until: str | None, by: str, as_json: bool) -> Iterator[str]:
    """Yield a table of usage, or one JSON object a line. Raises RemoteError."""
    answer = remote.get(*PATH, **{"from": since, "to": until, "by": by})
    found = list_views(answer.get("data"))
    if as_json:
        yield from list_lines(found, lambda _: iter(()), as_json=True)
        return
    if not answer.get("enabled"):
        yield "usage is not recorded: set usage.enabled in gateway.yaml"
    if found:
        names = [str(name) for name in _format_names(answer)]
        rows = [[*names, *COUNTS, "cost"], *(_format_cells(view, names) for view in found)]
        yield from _format_table(rows, left=len(names))
    else:
        yield "none"


def _format_names(answer: Mapping[str, object]) -> Sequence[object]:
    """Return what the gateway summed by."""
    names = answer.get("by")
    return names if isinstance(names, list) else ()


def _format_cells(view: View, names: Sequence[str]) -> list[str]:
    cost = view.get("cost")
    paid = f"{cost:.4f} {escape_line(str(view.get('currency')), 3)}" if isinstance(cost, int | float) else "-"
    named = [escape_line(str(view.get(name) or "-"), _NAME_CHARS) for name in names]
    return [*named, *(str(view.get(name, 0)) for name in COUNTS), paid]


def _format_table(rows: Sequence[Sequence[str]], *, left: int) -> Iterator[str]:
    """Yield lines whose columns stand below each other: names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
