"""The admission of equal passthrough requests: one that has room in its only rule nearly always costs a look at it."""

import re
from collections.abc import Iterable
from typing import Final

from gateway.limits.holds import BYTES_A_TOKEN, Hold
from gateway.limits.limiter import Limiter
from gateway.limits.rule import Meter, Rule

#: How long an answer may be, at whatever depth: nothing in a text looks like that, because its quotes are escaped.
_MOST: Final = re.compile(rb'[{,]\s*"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})(?=[\s,}])')


class Admission:
    """The rules of a plan's requests, and the way to those of the upstream and the model that a request goes to.

    `takes_tokens`: a model answers the requests. `only` is the meter of the only rule, in whose `usual` place requests
    may share (`Limiting`); None: there are others, or nobody knows yet what requests use. `clock` is its clock.
    """

    __slots__ = ("_counts", "_is_new", "clock", "limiter", "only", "rules", "takes_tokens")

    def __init__(self, limiter: Limiter, rules: tuple[Rule, ...], *, takes_tokens: bool) -> None:
        self.limiter = limiter
        self.rules = rules
        self.takes_tokens = takes_tokens
        self.clock = limiter.clock
        self.only: Meter | None = None
        # Whether a rule counts the tokens of these requests, and whether perhaps none has told yet what it used.
        self._counts = self._is_new = takes_tokens and any(rule.most_tokens for rule in rules)
        self._look()

    def _look(self) -> None:
        """Look whether it is known what requests use."""
        self._is_new = self._is_new and is_one_new(self.rules)
        if not self._is_new and len(self.rules) == 1 and self._counts == bool(self.rules[0].most_tokens):
            self.only = self.rules[0].meter

    def admit(self, body: bytes, length: int) -> Hold:
        """Take a place in all rules for a request with what is here of its body, and its length in bytes.

        Raises GatewayError as `Limiter.admit`.
        """
        if not self._counts:
            return self.limiter.admit(self.rules)
        if self._is_new:
            self._look()
        guess = guess_of(body, length) if self._is_new else None
        return self.limiter.admit(self.rules, length // BYTES_A_TOKEN, guess=guess)


def is_one_new(rules: Iterable[Rule]) -> bool:
    """Return whether no request has told one of the rules yet how many tokens it used."""
    return any(rule.most_tokens and not rule.meter.mean for rule in rules)


def guess_of(body: bytes, length: int) -> int | None:
    """Return the tokens that a request says it may use; None: it does not."""
    found = _MOST.findall(body)
    return length // BYTES_A_TOKEN + max(map(int, found)) if found else None
