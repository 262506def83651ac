"""The bar: the figures that are printed, their limits, and the tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

REFERENCE = "nginx"
# The name of chat completions in the unit of ratios within one system.
CHAT = "chat"

# One round of one system: its figures by measure; a run that failed has none.
Row = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A column of the first table; `bar` and `aim` are multiples of another figure, or in `unit`."""

    key: str
    title: str
    what: str
    digits: int = 0
    bar: float | None = None
    aim: float | None = None
    unit: str | None = None  # of an absolute bar; None: the bar is a ratio
    above: str | None = None  # the measure of the same system that an absolute bar counts from
    against: str | None = None  # the reference's measure that a ratio is to, where it is another one
    beside: str | None = None  # the measure of the same system, of chat, that a ratio is to

    @property
    def suffix(self) -> str:
        """Return the unit, as it stands behind a figure."""
        return f" {self.unit}" if self.unit else f" x {CHAT if self.beside else REFERENCE}"


MEASURES = (
    Measure(key="request_us", title="us/request", what="CPU per request, saturated", digits=1, bar=2.0, aim=1.5),
    Measure(key="answer_30kb_us", title="us/30 KB", what="CPU per 30 KB answer", digits=1, bar=0.8, aim=0.6),
    Measure(key="stream_us", title="us/stream", what="CPU per stream of 64 events", bar=1.1, aim=1.0),
    Measure(key="event_us", title="us/event", what="CPU per event at 10,000 events/s", digits=1, bar=1.2, aim=1.0),
    Measure(key="added_p50_us", title="+p50 us", what="added p50 at 100 requests/s", bar=1.5, aim=1.2),
    Measure(key="idle_mb", title="MB idle", what="memory, idle", digits=1, bar=60, unit="MB"),
    Measure(
        key="streams_mb",
        title="MB 1,000 streams",
        what="memory added by 1,000 open streams",
        digits=1,
        bar=15,
        unit="MB",
        above="idle_mb",
    ),
    Measure(key="context_us", title="us/ctx", what="CPU per context request, 8 events", bar=1500, aim=800, unit="us"),
    Measure(key="context_stream_us", title="us/ctx str", what="the same, streamed", bar=1500, aim=800, unit="us"),
    Measure(key="context_64_us", title="us/ctx 64", what="the same, 64 events", unit="us"),
    Measure(
        key="context_event_us",
        title="us/ctx event",
        what="CPU per context event at 10,000 events/s",
        digits=1,
        bar=2.5,
        aim=1.5,
        against="event_us",
    ),
    Measure(
        key="response_us", title="us/resp", what="CPU per response, 8 events, stored", bar=1.3, beside="context_us"
    ),
    Measure(
        key="response_stream_us", title="us/resp str", what="the same, streamed", bar=1.3, beside="context_stream_us"
    ),
    Measure(
        key="response_64_us", title="us/resp 64", what="the same, whole, 64 events", bar=1.3, beside="context_64_us"
    ),
    Measure(
        key="response_event_us",
        title="us/resp event",
        what="CPU per event of responses at 10,000 events/s",
        digits=1,
        bar=1.3,
        beside="context_event_us",
    ),
    Measure(key="first_us", title="+first us", what="added p50 to the first text", bar=3000, unit="us"),
    Measure(key="text_us", title="text us", what="p50 from upstream's to client's first text", bar=3000, unit="us"),
    Measure(key="ready_s", title="ready s", what="ready after start", digits=2, bar=1.0, aim=0.5, unit="s"),
)


class Figures:
    """All rounds of all systems, and the figures read from them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}

    def add(self, system: str, row: Row) -> None:
        self.rows.setdefault(system, []).append(row)

    def list_values(self, system: str, key: str) -> list[float]:
        return [row[key] for row in self.rows.get(system, []) if key in row]

    def select_compared(self, system: str, measure: Measure) -> list[float]:
        """Return the figures to compare with the bar, one for each round.

        They are ratios within one round, so that a change of the machine cancels.
        """
        own = self.rows.get(system, [])
        other = own if measure.above or measure.beside else self.rows.get(REFERENCE, [])
        if measure.unit and not measure.above:
            return self.list_values(system, measure.key)
        combine: Callable[[float, float], float] = float.__sub__ if measure.above else float.__truediv__
        key = measure.above or measure.beside or measure.against or measure.key
        pairs = ((a.get(measure.key), b.get(key)) for a, b in zip(own, other, strict=False))
        return [combine(mine, its) for mine, its in pairs if mine is not None and its]


def format_figures_table(figures: Figures) -> str:
    """Return a table with one line for each system: the medians over the rounds."""
    lines = []
    for system in figures.rows:
        values = ((measure, figures.list_values(system, measure.key)) for measure in MEASURES)
        lines.append(
            [system, *(format_number(median(seen), measure.digits) if seen else "-" for measure, seen in values)]
        )
    return format_table(["system", *(measure.title for measure in MEASURES)], lines)


def format_bar_table(figures: Figures, system: str) -> str:
    """Return a table with one line for each measure: the system beside its bar."""
    lines = []
    for measure in MEASURES:
        held = figures.select_compared(system, measure)
        suffix = measure.suffix
        found = f"{format_number(median(held), 2)}{suffix}" if held else "-"
        spread = f"{format_number(min(held), 2)} to {format_number(max(held), 2)}" if len(held) > 1 else "-"
        limits = (f"<= {limit:g}{suffix}" if limit is not None else "-" for limit in (measure.bar, measure.aim))
        lines.append([measure.what, found, spread, *limits, mark(measure, held)])
    return format_table(["what", system, "over the rounds", "bar", "aim", ""], lines)


def mark(measure: Measure, held: Sequence[float]) -> str:
    if not held:
        return "not measured"
    if measure.aim is not None and median(held) <= measure.aim:
        return "pass, aim met"
    if measure.bar is None:
        return ""
    return "pass" if median(held) <= measure.bar else "MISS"


def format_number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def format_table(heading: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table with its columns lined up: the first to the left, the others to the right."""
    rows = [list(heading), *(list(line) for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows.insert(1, rule)
    return "\n".join(f"| {' | '.join(pad(row, widths))} |" for row in rows)


def pad(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
