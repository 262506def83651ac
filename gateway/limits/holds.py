"""The places of one request in its rules: how they are given back, and how what was reserved is settled.

A hold is a list of places. It has no class, because each request has one, and a list is what the interpreter makes
without a call.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gateway.limits.counter import Due
    from gateway.limits.rule import Meter

#: The outcome of a passthrough request without room in its limits.
LIMITED: Final = "limited"
#: A request's place in a rule: the meter, what the tick owes in which it was taken, the tokens that are reserved (None:
#: they do not count), and the requests that are under way with it: one, or none.
Place: TypeAlias = "tuple[Meter, Due, int | None, int]"
Hold: TypeAlias = list[Place]
#: What is owed, by meters. It may be there twice.
Owed: TypeAlias = "list[tuple[Meter, Due]]"


def leave(hold: Hold) -> bool:
    """Be under way no longer. Whoever calls this settles the places later, and does not call `end`.

    Return whether that should come at once: a rule has no mean yet to reserve by for the next request.
    """
    is_first = False
    for meter, _, reserved, requests in hold:
        if requests:
            meter.under_way -= 1
            if meter.others:
                meter.tell()
        if reserved is not None and not meter.mean:
            is_first = True
    return is_first


def owe(hold: Hold, used: int) -> Owed:
    """Return what is to be corrected, after so many tokens were used."""
    owed: Owed = []
    for meter, due, reserved, _ in hold:
        if reserved is not None:
            due.tokens += used - reserved
            if used:
                due.used += used
                due.requests += 1
            owed.append((meter, due))
    return owed


def is_urgent(owed: Owed) -> bool:
    """Return whether what is owed may decide about the next request: it is more tokens than are taken ahead."""
    return any(due.tokens > meter.ahead_tokens for meter, due in owed)


def settle(owed: Owed) -> None:
    """Correct what was reserved for some requests, and take into the means what they used."""
    for meter, due in owed:
        tokens, used, requests = due.tokens, due.used, due.requests
        due.tokens = due.used = due.requests = 0
        meter.settle(due.tick, tokens)
        if requests:
            meter.learn(used / requests, requests)


def end(hold: Hold, tokens: int | None = None) -> None:
    """Give the places back. `tokens` are those that were used; None: not known. Idempotent."""
    leave(hold)
    if tokens is not None:
        settle(owe(hold, tokens))
    hold.clear()


def give_back(hold: Hold, outcome: str, tokens: int | None = None) -> None:
    """Give the places of a passthrough request back, by its outcome. `tokens` as for `end`."""
    if outcome == LIMITED:
        withdraw(hold)
    else:
        end(hold, tokens)


def withdraw(hold: Hold) -> None:
    """Take back all that was taken: a limit refuses the request, which so uses nothing. Idempotent."""
    leave(hold)
    for meter, due, reserved, requests in hold:
        meter.correct(-requests, -(reserved or 0), due.tick)
    hold.clear()


def unreserve(hold: Hold) -> None:
    """Reserve no tokens, and settle none."""
    for number, (meter, due, reserved, requests) in enumerate(hold):
        meter.correct(0, -(reserved or 0), due.tick)
        hold[number] = meter, due, None, requests
