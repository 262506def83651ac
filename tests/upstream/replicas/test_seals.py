"""Seals of requests between workers: what they bind, and what is refused."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.upstream.replicas.seals import SEAL_FIELD, ReplicaSeals, SealedRequest, SealError

SECRET = b"s" * 32
REQUEST = SealedRequest(
    method=b"POST",
    target=b"/replica/mcp",
    fields=((b"Mcp-Session-Id", b"abc"), (b"Authorization", b"Bearer gw-1"), (b"Content-Length", b"2")),
)


def sealed(seals: ReplicaSeals, request: SealedRequest = REQUEST, *, receiver: str = "two") -> SealedRequest:
    """The request as it arrives, with its seal and with fields of the connection."""
    value = seals.write(request, b"{}", receiver=receiver, client="10.1.2.3")
    return replace(request, fields=(*request.fields, (b"Host", b"localhost"), (SEAL_FIELD, value)))


def test_seal_names_sender_and_client() -> None:
    seal = ReplicaSeals(SECRET, owner="two").read(sealed(ReplicaSeals(SECRET, owner="one")))
    assert (seal.sender, seal.client) == ("one", "10.1.2.3")
    assert seal.fits(b"{}") and not seal.fits(b"[]")


@pytest.mark.parametrize(
    "change",
    [
        lambda request: replace(request, target=b"/replica/services"),
        lambda request: replace(request, method=b"GET"),
        lambda request: replace(request, fields=request.fields[1:]),
        lambda request: replace(request, fields=((b"x-context-user", b"eve"), *request.fields)),
        lambda request: replace(request, fields=request.fields[:-1]),
        lambda request: replace(request, fields=(*request.fields, request.fields[-1])),
        lambda request: replace(request, fields=(*request.fields[:-1], (SEAL_FIELD, b"1 one 1 - 00 11"))),
        lambda request: replace(request, fields=(*request.fields[:-1], (SEAL_FIELD, b"\xff"))),
        lambda request: replace(
            request, fields=(*request.fields[:-1], (SEAL_FIELD, request.fields[-1][1].replace(b"10.1", b"10.9")))
        ),
    ],
)
def test_changed_request_is_refused(change: Callable[[SealedRequest], SealedRequest]) -> None:
    """Its target, a field, the client's address, or no seal at all."""
    request = sealed(ReplicaSeals(SECRET, owner="one"))
    with pytest.raises(SealError):
        ReplicaSeals(SECRET, owner="two").read(change(request))


def test_seal_of_another_store_or_for_another_worker_is_refused() -> None:
    for seals, receiver in (
        (ReplicaSeals(b"t" * 32, owner="one"), "two"),
        (ReplicaSeals(SECRET, owner="one"), "three"),
    ):
        with pytest.raises(SealError, match="another one"):
            ReplicaSeals(SECRET, owner="two").read(sealed(seals, receiver=receiver))


def test_request_is_accepted_once_in_any_order() -> None:
    """Whatever was sent in between; one that is too old to know is refused, too."""
    sender, receiver = ReplicaSeals(SECRET, owner="one"), ReplicaSeals(SECRET, owner="two")
    requests = {}
    for number in (1, 3, 4, 1001, 4999, 5000):
        sender._number = number - 1
        requests[number] = sealed(sender)
    for number in (4, 1, 5000, 1001, 4999):
        receiver.read(requests[number])
    for number in (5000, 1001, 4999, 4, 3):
        with pytest.raises(SealError, match="before"):
            receiver.read(requests[number])
