"""The figures that rooms hand on: counts for the page of metrics, and points of the history on the page of status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: The name of a family, the values of its labels.
Key = tuple[str, tuple[str, ...]]
#: One counter has one value; a histogram the count of each bucket and the sum.
Counted = tuple[Key, Iterable[float]]
Counts = Mapping[Key, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The figures of the `span_s` seconds before `at_s` (Unix time).

    `errors` are answers with 500 or more. `overhead_ms` is the mean time that the gateway itself added before the first
    byte, `approval_wait_s` the mean time from the question to the decision; None: there was none. `pending` is the
    number of pending approvals at `at_s`.
    """

    at_s: float
    span_s: float
    requests: int
    errors: int
    overhead_ms: float | None
    approval_wait_s: float | None
    pending: int
