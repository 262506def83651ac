"""The way in: what is decided once may be remembered for equal heads, and for nothing else."""

import itertools
import random
from dataclasses import replace

import pytest

from gateway.contracts.errors import GatewayError
from gateway.http.request_head import RequestHead
from gateway.lanes.head_cache import HEAD_LIMIT_BYTES
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.router import Router

from .assembled import HERE, From, endpoint, keyring, read, router

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 12\r\nX: 1"


def decided(way_in: Router, raw: bytes) -> tuple[Plan, bytes]:
    found = way_in.route(read(raw + b"\r\n\r\n"), raw)
    assert found is not None
    return found


def sent(found: tuple[Plan, bytes]) -> tuple[object, ...]:
    """All that a plan makes of a request."""
    plan, digits = found
    head, target, policy = plan.head, plan.target, plan.policy
    length = int(digits) if digits else head.length
    traits = (
        head.minor,
        head.keep_alive,
        head.expects_continue,
        head.websocket,
        policy.repeatable,
        policy.plain,
    )
    before, after = target.head
    caller, up = target.identity.caller, target.member.pool.endpoint
    return before + digits + after, length, head.method, head.path, caller, up, traits


def test_equal_head_reuses_its_plan() -> None:
    """With the same body behind it or another one."""
    way_in = router(endpoint())
    assert way_in.find_plan(HEAD + b"\r\n\r\n", len(HEAD), HERE) is None
    plan, digits = decided(way_in, HEAD)
    assert digits.join(plan.target.head).startswith(
        b"POST /v1/x HTTP/1.1\r\nHost: up.example\r\nContent-Length: 12\r\nX: 1"
    )
    for body in (b"", b"x" * 12, b"\r\n\r\n"):
        found = way_in.find_plan(HEAD + b"\r\n\r\n" + body, len(HEAD), HERE)
        assert found is not None and found[0] is plan and found[1] == b"12"


@pytest.mark.parametrize("digits", [b"0", b"1", b"13", b"012", b"999999999999999999"])
def test_head_with_another_content_length_reuses_its_plan(digits: bytes) -> None:
    """Clients send the same head again and again, with bodies of other sizes."""
    way_in = router(endpoint())
    plan, _ = decided(way_in, HEAD)
    raw = HEAD.replace(b"12", digits)
    found = way_in.find_plan(raw, len(raw), HERE)
    assert found is not None and found[0] is plan and found[1] == digits


OTHERS = [
    HEAD.replace(b"POST", b"PUT"),
    HEAD.replace(b"/v1/x", b"/v1/y"),
    HEAD.replace(b"X: 1", b"X: 2"),
    HEAD.replace(b"X: 1", b"X:1"),
    HEAD.replace(b"X: 1", b"x: 1"),
    HEAD.replace(b"X: 1", b"X: 1\r\nX: 1"),
    HEAD.replace(b"\r\nX: 1", b""),
    HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
    HEAD.replace(b"Host: gw", b"Host: gx"),
    HEAD.replace(b"Content-Length", b"content-length"),
    HEAD.replace(b": 12", b":12"),
    HEAD.replace(b": 12", b": 1 2"),
    HEAD.replace(b": 12", b": 12 "),
    HEAD.replace(b": 12", b":  12"),
    HEAD.replace(b": 12", b": +12"),
    HEAD.replace(b": 12", b": 12, 12"),
    HEAD.replace(b": 12", b": "),
    HEAD.replace(b": 12", b": 0x12"),
    HEAD.replace(b": 12", b": \xb2"),
    HEAD.replace(b": 12", b": 1234567890123456789"),
    HEAD.replace(b": 12", b": 12\r\nContent-Length: 12"),
    HEAD.replace(b": 12", b": 12\r\nTransfer-Encoding: chunked"),
    b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nX: 1\r\nContent-Length: 12",
    HEAD + b"\r\nContent-Length: 12",
    HEAD + b"\r\ncontent-length: 3",
    HEAD + b" ",
    b"\r\n" + HEAD,
]


@pytest.mark.parametrize("raw", OTHERS, ids=range(len(OTHERS)))
def test_different_head_never_reuses_a_plan(raw: bytes) -> None:
    """One byte is enough."""
    way_in = router(endpoint())
    decided(way_in, HEAD)
    assert way_in.find_plan(raw + b"\r\n\r\n", len(raw), HERE) is None


#: Parts of heads: method, version, and the digits of a length in many spellings.
LENGTHS = (
    (b"POST", b"GET"),
    (b"1.1", b"1.0"),
    (b"Content-Length: ", b"content-length: ", b"Content-Length:", b"X-Content-Length: ", b"X: Content-Length: "),
    (b"0", b"5", b"12", b"007", b"5 ", b" 5"),
)


def test_cached_plan_equals_a_fresh_plan() -> None:
    """Heads in thousands of variations, in any order: what is recalled does what a fresh decision does."""
    words = [
        *LENGTHS,
        (b"", b"\r\nConnection: close", b"\r\nExpect: 100-continue", b"\r\nConnection: Upgrade\r\nUpgrade: websocket"),
        (b"", b"\r\ncontent-length: 9", b"\r\nX: content-length: 9"),
    ]
    heads = [
        b"%b /v1/x HTTP/%b\r\nHost: gw\r\nA: b\r\n%b%b%b%b" % choice for choice in itertools.product(*words)
    ]  # fmt: skip
    random.Random(5).shuffle(heads)
    way_in = router(endpoint())
    recalled = 0
    for raw in heads * 2:
        try:
            fresh = decided(router(endpoint()), raw)
        except GatewayError:
            assert way_in.find_plan(raw, len(raw), HERE) is None
            continue
        found = way_in.find_plan(raw, len(raw), HERE)
        recalled += found is not None
        assert sent(found or decided(way_in, raw)) == sent(fresh), raw
    assert recalled > len(heads) // 4


def test_revoked_key_has_no_cached_plan_after_reload() -> None:
    """A reload is another Entry: it knows nothing of the old one's plans; neither does another key find them."""
    raw = HEAD + b"\r\nAuthorization: Bearer old"
    way_in = router(endpoint(api_key=b"sk"), keys=keyring("old"))
    decided(way_in, raw)
    assert way_in.find_plan(raw, len(raw), HERE) is not None
    wrong = raw.replace(b"old", b"odl")
    assert way_in.find_plan(wrong, len(wrong), HERE) is None
    reloaded = router(endpoint(api_key=b"sk"), keys=keyring("new"))
    assert reloaded.find_plan(raw, len(raw), HERE) is None
    with pytest.raises(GatewayError, match="not valid"):
        reloaded.route(read(raw + b"\r\n\r\n"), raw)
    assert reloaded.find_plan(raw, len(raw), HERE) is None


def test_declined_requests_are_not_cached() -> None:
    """Errors are not remembered, and leave nothing behind."""
    way_in = router(endpoint(), keys=keyring("k"))
    for raw in (HEAD, HEAD.replace(b"/v1/x", b"/v9/x"), HEAD.replace(b"POST", b"TRACE")):
        for _ in range(2):
            assert way_in.find_plan(raw, len(raw), HERE) is None
            with pytest.raises(GatewayError):
                way_in.route(read(raw + b"\r\n\r\n"), raw)


def test_large_heads_are_not_kept() -> None:
    """They would fill the memory with what does not come again."""
    way_in = router(endpoint())
    raw = HEAD + b"\r\nBig: " + b"x" * HEAD_LIMIT_BYTES
    decided(way_in, raw)
    assert way_in.find_plan(raw, len(raw), HERE) is None


def test_plans_of_seven_thousand_clients_stay_cached() -> None:
    """However they take turns: heads of 600 bytes, each with a key of its own."""
    way_in = router(endpoint())
    heads = [HEAD + b"\r\nX-Gateway-Key: %d\r\nY: %b" % (i, b"y" * 500) for i in range(7000)]
    for raw in heads:
        decided(way_in, raw)
    for _ in range(3):
        assert all(way_in.find_plan(raw, len(raw), HERE) is not None for raw in heads)


def context_head(way_in: Router, raw: bytes, *, address: str = "127.0.0.1") -> tuple[RequestHead, bool]:
    """The head as a connection has it, and whether an equal one was known."""
    head, known = way_in.read_head(raw + b"\r\n\r\n{}", len(raw), From(address))
    if not known:
        assert way_in.route(head, raw) is None
    return head, known


def test_cached_context_head_equals_a_fresh_head() -> None:
    """In thousands of variations, in any order, from any place: it is the head that would be read."""
    words = [
        *LENGTHS,
        (b"", b"\r\nConnection: close", b"\r\nExpect: 100-continue", b"\r\nTransfer-Encoding: chunked"),
        (b"", b"\r\ncontent-length: 9", b"\r\nX: content-length: 9"),
    ]
    heads = [
        b"%b /context/v1/chat/completions HTTP/%b\r\nHost: gw\r\nA: b\r\n%b%b%b%b" % choice
        for choice in itertools.product(*words)
    ]
    random.Random(5).shuffle(heads)
    way_in, recalled = router(endpoint()), 0
    for number, raw in enumerate(heads * 2):
        address = f"10.0.0.{number % 3}"
        try:
            fresh = replace(read(raw + b"\r\n\r\n"), peer=address)
        except GatewayError:
            with pytest.raises(GatewayError):
                context_head(way_in, raw)
            continue
        head, known = context_head(way_in, raw, address=address)
        recalled += known
        assert head == fresh and head.render_origin_form() == fresh.render_origin_form(), raw
    assert recalled > len(heads) // 4


def test_derived_head_data_is_shared_by_equal_heads() -> None:
    """With those that differ in length or come from elsewhere, and with no other."""
    way_in = router(endpoint())
    raw = HEAD.replace(b"/v1/x", b"/context/v1/chat/completions")
    first, _ = context_head(way_in, raw)
    first.derived["seen"] = True
    assert context_head(way_in, raw)[0].derived == {"seen": True}
    assert context_head(way_in, raw.replace(b"12", b"7"), address="10.0.0.1")[0].derived == {"seen": True}
    assert context_head(way_in, raw.replace(b"X: 1", b"X: 2"))[0].derived == {}


def test_only_authenticated_context_lane_heads_are_cached() -> None:
    """Only those with a key, for the context lane."""
    way_in = router(endpoint(), keys=keyring("k", scopes=["context"]))
    raw = HEAD.replace(b"/v1/x", b"/context/v1/chat/completions") + b"\r\nX-Gateway-Key: "
    for key, again in ((b"no", False), (b"k", True)):
        assert [context_head(way_in, raw + key)[1] for _ in range(2)] == [False, again]
    page = b"GET /own HTTP/1.1\r\nHost: gw\r\nX-Gateway-Key: k"
    assert [context_head(way_in, page)[1] for _ in range(2)] == [False, False]


def test_own_paths_have_no_passthrough_plan() -> None:
    """None says so; an alias is what it stands for."""
    way_in = router(endpoint())
    raw = b"GET /own HTTP/1.1\r\nHost: gw"
    assert way_in.route(read(raw + b"\r\n\r\n"), raw) is None
    plan, _ = decided(way_in, b"GET /chat/completions?a HTTP/1.1\r\nHost: gw")
    assert (
        plan.target.head[0].startswith(b"GET /v1/chat/completions?a HTTP/1.1\r\n")
        and plan.head.path == b"/v1/chat/completions"
    )


def test_each_prefix_has_its_pool() -> None:
    """And its endpoint's base path."""
    way_in = router(endpoint(name="a"), endpoint(name="b", base_path=b"/base"))
    one, _ = decided(way_in, b"GET /v1/x HTTP/1.1\r\nHost: gw")
    two, _ = decided(way_in, b"GET /v2/x HTTP/1.1\r\nHost: gw")
    assert (one.target.member.pool.endpoint.name, two.target.member.pool.endpoint.name) == ("a", "b")
    assert two.target.head[0].startswith(b"GET /base/x HTTP/1.1\r\n")


@pytest.mark.parametrize("method", [b"CONNECT", b"TRACE"])
def test_connect_and_trace_methods_return_405(method: bytes) -> None:
    """CONNECT tunnels, TRACE echoes, `*` is nobody's path."""
    way_in = router(endpoint())
    raw = method + b" /v1/x HTTP/1.1\r\nHost: gw"
    with pytest.raises(GatewayError) as caught:
        way_in.route(read(raw + b"\r\n\r\n"), raw)
    assert caught.value.facts.status == 405
    assert caught.value.fields == {"Allow": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}
