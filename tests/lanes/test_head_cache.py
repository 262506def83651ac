"""Heads of the context lane that are remembered, in bounded memory."""

import tracemalloc

import pytest

from gateway.lanes.head_cache import KnownHead, KnownHeads

from .assembled import HERE, endpoint, keyring, read, router

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 12\r\nX: %d\r\nY: %b"


def test_known_head_is_reused_with_another_content_length() -> None:
    """The same one, as long as nothing differs."""
    head = read(HEAD % (1, b"") + b"\r\n\r\n")
    known = KnownHead(head, 56, b"12")
    assert known.match_head(b"12", None) is head
    other = known.match_head(b"007", "10.0.0.1")
    assert (other.length, other.peer, other.find_value(b"content-length")) == (7, "10.0.0.1", b"007")
    assert other.derived is head.derived and known.match_head(b"007", "10.0.0.1") is other
    assert known.match_head(b"12", None) == head


@pytest.mark.parametrize("filler", [0, 500, 3900])
def test_the_memory_of_heads_is_bounded(monkeypatch: pytest.MonkeyPatch, filler: int) -> None:
    """With all that is found out about them."""
    monkeypatch.setattr("gateway.lanes.head_cache.HEADS_BYTES", 1 << 20)
    way_in = router(endpoint(), keys=keyring("k", scopes=["context"]))
    start = HEAD.replace(b"/x", b"/chat/completions").replace(b" /v1", b" /context/v1") + b"\r\nX-Gateway-Key: k"
    tracemalloc.start()
    try:
        for number in range(2 * (1 << 20) // (filler + 500)):
            raw = start % (number, b"y" * filler)
            head, _ = way_in.read_head(raw + b"\r\n\r\n", len(raw), HERE)
            assert way_in.route(head, raw) is None
            way_in.identify(head, upstream_has_key=True, scope="context")
        now_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"\nheads of {len(raw)} bytes: {now_bytes / (1 << 20):.2f} of 1 MiB")
    assert now_bytes <= 1.1 * (1 << 20)


def test_head_cache_evicts_oldest_first() -> None:
    """The latest hundreds are found, whatever came before them."""
    heads = KnownHeads()
    keys = [HEAD % (number, b"y" * 500) for number in range(9000)]
    for key in keys:
        heads.store(key, KnownHead(read(key + b"\r\n\r\n"), 56, b"12"))
    found = [key in heads.by_head for key in keys]
    assert found == sorted(found) and any(found) and not all(found)
