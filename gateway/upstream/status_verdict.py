"""The verdict on an endpoint by the status of its answer: it is at work, it fails, or another endpoint decides.

A 500 can be the fault of the request, and so can a 401. Such an answer is the endpoint's fault if another endpoint
answers the same request well. Until then the endpoint is suspected, and the answer counts for nothing.
"""

from typing import Final

from gateway.upstream.endpoint import Endpoint

#: Statuses of an endpoint that fails, whatever the caller.
FAILING: Final = frozenset(("502", "503", "504", "529"))
#: Statuses that mean that nothing was done. They may ask for a pause, too.
NOTHING_DONE: Final = frozenset(("429", "503", "529"))
#: Statuses that refuse a key: it is revoked, without rights, or without money.
KEY_REFUSED: Final = frozenset(("401", "402", "403"))
#: Statuses that may be the endpoint's fault (`is_suspect`), and others that never mean that something was done.
SUSPECT: Final = frozenset(("404", "408", "429", "500")) | KEY_REFUSED
#: Of these, the ones after which the same endpoint gets no second request: its answer would be the same.
ELSEWHERE: Final = SUSPECT - {"429"}


def is_fault(reason: str) -> bool | None:
    """Return whether the end of a try without a good answer is the endpoint's fault; None: it may be the request's.

    `reason` is `connect`, `reset`, `timeout` or a status. An endpoint that refuses a request is at work: a 4xx can be
    the fault of one client, so it never counts against the endpoint.
    """
    if reason.startswith("4"):
        return False
    return None if reason.isdigit() and reason not in FAILING else True


def is_suspect(status: str, endpoint: Endpoint, *, computes: bool, paused: bool) -> bool:
    """Return whether a status is the endpoint's fault, if another one answers the same request well.

    A key that the client brought is the client's affair. A 404 is an answer, unless the request only `computes`: then
    the endpoint has no such model, or no such path. `paused`: it requested a pause, and has it.
    """
    if status in KEY_REFUSED:
        return endpoint.api_key is not None
    if status == "429":
        return endpoint.api_key is not None and not paused
    return status in ("408", "500") or (status == "404" and computes)
