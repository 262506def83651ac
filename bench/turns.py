"""Gateways that take turns, so that each figure of one has another's beside it, from the same mood of the machine."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bench.grown import Grown

#: Sends requests to a gateway, and returns the CPU time of one in microseconds.
Spent: TypeAlias = Callable[[Grown], float]


def measure_in_turns(gateways: Mapping[str, Grown], spent: Spent, *, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of CPU of a request to each gateway, by rounds. Every other round goes in reverse order.

    One more round comes before them: it warms up.
    """
    spent_us: dict[str, list[float]] = {name: [] for name in gateways}
    order = list(gateways.items())
    for number in range(rounds + 1):
        for name, gateway in order if number % 2 else order[::-1]:
            each_us = spent(gateway)
            if number:
                spent_us[name].append(each_us)
    return spent_us
