"""The check of times that contradict each other: one that can never pass before another one has ended it."""

from gateway.config.document import Document
from gateway.config.problems import KeyPath
from gateway.config.schema.upstreams import BreakerSettings, Health, TimeoutsSettings
from gateway.config.values.units import parse_duration


def check_timeouts(document: Document) -> None:
    """Report times of upstreams that can never apply; warn of queues that outlast a stage of a chain."""
    shortest = _find_shortest_stage(document)
    for upstream in document.iterate_matches("upstreams", "*"):
        _check_breaker(document, (*upstream, "breaker"))
        _check_health(document, (*upstream, "health"))
        _check_hedge(document, upstream)
        wait_s = _read_seconds(document, (*upstream, "queue", "wait"))
        if shortest is not None and wait_s is not None and wait_s >= shortest[0]:
            most_s, stage = shortest
            text = f"is not shorter than the 'timeout' of a stage at {document.locate(stage)} ({most_s:g} s), so its"
            document.warn((*upstream, "queue", "wait"), f"{text} runs end while they wait: choose a shorter one")


def _check_breaker(document: Document, breaker: KeyPath) -> None:
    """Report a breaker whose `open` is longer than `longest`."""
    if not isinstance(document.get(*breaker), dict):
        return
    usual = BreakerSettings()
    open_s = _read_seconds(document, (*breaker, "open"), usual.open)
    longest_s = _read_seconds(document, (*breaker, "longest"), usual.longest)
    if open_s is not None and longest_s is not None and open_s > longest_s:
        given = "longest" if document.get(*breaker, "longest") is not None else "open"
        text = f"'open' ({open_s:g} s) is longer than 'longest' ({longest_s:g} s), the longest time without requests"
        document.complain((*breaker, given), f"{text}: raise 'longest' to at least 'open'")


def _check_health(document: Document, health: KeyPath) -> None:
    """Report health checks whose `timeout` is longer than their `interval`."""
    if not isinstance(document.get(*health), dict):
        return
    usual = Health()
    timeout_s = _read_seconds(document, (*health, "timeout"), usual.timeout)
    interval_s = _read_seconds(document, (*health, "interval"), usual.interval)
    if timeout_s is not None and interval_s is not None and timeout_s > interval_s:
        given = "timeout" if document.get(*health, "timeout") is not None else "interval"
        text = f"'timeout' ({timeout_s:g} s) is longer than 'interval' ({interval_s:g} s): a check has to end before"
        document.complain((*health, given), f"{text} the next one; lower 'timeout', or raise 'interval'")


def _check_hedge(document: Document, upstream: KeyPath) -> None:
    """Report a `hedge` that is not shorter than `timeouts.first_byte`."""
    hedge_s = _read_seconds(document, (*upstream, "hedge"))
    first_s = _read_seconds(document, (*upstream, "timeouts", "first_byte"), TimeoutsSettings().first_byte)
    if hedge_s is not None and first_s is not None and hedge_s >= first_s:
        text = (
            f"is not shorter than timeouts.first_byte ({first_s:g} s), which ends the request before: choose a shorter"
        )
        document.complain((*upstream, "hedge"), f"{text} one, such as the time in which most answers begin")


def _find_shortest_stage(document: Document) -> tuple[float, KeyPath] | None:
    """Return the shortest `timeout` that a stage is given, in seconds, with its path; None: no stage has one."""
    paths = document.iterate_matches("chains", "*", "*", "with", "timeout")
    found = [(seconds, path) for path in paths if (seconds := _read_seconds(document, path)) is not None]
    return min(found, key=lambda one: one[0], default=None)


def _read_seconds(document: Document, path: KeyPath, usual: float | None = None) -> float | None:
    """Return a time in seconds, or `usual` if none is given; None for a wrong one, which others report."""
    value = document.get(*path)
    if value is None:
        return usual
    try:
        return parse_duration(value)
    except ValueError:
        return None
