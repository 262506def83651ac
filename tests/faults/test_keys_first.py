"""No page reads a body, or does anything, before it has seen a key that may ask for it."""

import json

import pytest
from functional.through import ask, client_of, error_of, get, post, through
from gateways import key, scrape
from own_pages import own_pages

from gateway.api.ops_pages import OPEN
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Response

#: A body that nobody has the room for; not a byte of it is sent.
HUGE = (b"Content-Type: application/json", b"Content-Length: %d" % (1 << 40))
BODIES = {
    "length": HUGE,
    "chunked": (b"Content-Type: application/json", b"Transfer-Encoding: chunked"),
    "waiting": (*HUGE, b"Expect: 100-continue"),
    "other type": (b"Content-Type: text/plain", b"Content-Length: 9"),
}
OPENING = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: " + b"A" * 22,
)
CALLERS = {
    "nobody": ((), 401, "missing_api_key"),
    "a wrong key": ((b"X-Gateway-Key: wrong",), 401, "invalid_api_key"),
    "another upstream's key": ((b"Authorization: Bearer sk-of-a-provider",), 401, "invalid_api_key"),
    "a key that may do little": ((b"X-Gateway-Key: small",), 403, "scope_missing"),
}
KEYS = [key("small", "metrics"), key("big", "context", "approve", "admin", "passthrough")]


#: Other paths of dialects are the upstream's, unless a header makes them ours.
OURS = ("/context/", "/v1/system-prompts", "/workflows", "/mcp/")


async def routes(gateway: LocalGateway) -> list[tuple[bytes, bytes]]:
    """Every page that the gateway has but for those that everybody may ask, and some that it has not."""
    found = [(method, path) for method, path, _ in await own_pages(gateway)]
    found = [(method, path) for method, path in found if path not in OPEN and path.startswith(OURS)]
    assert len(found) >= 44
    found += [("POST", "/context/nothing"), ("POST", "/mcp/services/a/b/c"), ("PATCH", "/v1/system-prompts/a")]
    return [(method.encode(), path.replace("{", "").replace("}", "").encode()) for method, path in found]


def find_code(answer: Response) -> str:
    """The code of an error answer; in the form of Messages it stands behind the message."""
    body = json.loads(answer.payload)
    if body.get("type") != "error":
        return str(error_of(answer)["code"])
    assert body.keys() == {"type", "error", "request_id"} and body["error"].keys() == {"type", "message"}
    return str(body["error"]["message"]).rpartition(" (")[2].partition(";")[0]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("body", BODIES)
async def test_unauthorized_request_is_refused_before_its_body_arrives(caller: str, body: str) -> None:
    """401 or 403 while not one byte of the body is sent, and nobody is invited to send it."""
    lines, status, code = CALLERS[caller]
    async with through(keys=KEYS, upstream={"api_key": "sk-up"}) as (gateway, upstream):
        for method, path in await routes(gateway):
            missing = method == b"PATCH" or path.startswith((b"/context/nothing", b"/mcp/services/a/"))
            opening = OPENING if path == b"/context/ws" else BODIES[body]
            async with client_of(gateway) as client:
                await client.send(get(path, *lines, *opening, method=method))
                answer = await client.read_response(method=method.decode())
            assert not answer.informational
            if status == 403 and missing:
                assert answer.status in (404, 405, 415), path
            elif status == 403 and body == "other type" and path != b"/context/ws":
                assert answer.status in (403, 415), path
            else:
                assert answer.status == status, (method, path)
                assert method == b"HEAD" or find_code(answer) == code, (method, path)
        passed = await ask(gateway, get(b"/v1/models", *lines, *HUGE, method=b"POST"))
        assert passed.status == status and not upstream.requests


async def test_continue_is_sent_once_the_key_is_accepted() -> None:
    """`Expect: 100-continue` with a key: the invitation, then the answer to what was sent."""
    async with through(keys=KEYS, upstream={"api_key": "sk-up"}) as (gateway, _), client_of(gateway) as client:
        content = b'{"text": "Be kind."}'
        head, _, _ = post(content, b"/v1/system-prompts/mine", b"X-Gateway-Key: big", method=b"PUT").partition(
            b"\r\n\r\n"
        )
        await client.send(head + b"\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.read_head()).startswith(b"HTTP/1.1 100 ")
        await client.send(content)
        assert (await client.read_response()).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""]
)
async def test_own_pages_refuse_bodies_without_a_json_content_type(kind: str) -> None:
    """415: any page can send the other types without asking first, or none. JSON of any charset and kind is read."""
    lines = [b"Origin: http://gw.example", *([b"Content-Type: " + kind.encode()] if kind else [])]
    async with through() as (gateway, _):
        for path in (
            b"/mcp/services",
            b"/context/v1/chat/completions",
            b"/context/approvals/ap_x",
            b"/workflows/x/runs",
        ):
            answer = await ask(gateway, post(b'{"name": "x", "command": "/bin/true"}', path, *lines))
            assert (answer.status, error_of(answer)["code"]) == (415, "unsupported_media_type")
        for good in (b"application/json; charset=utf-8", b"Application/JSON", b"application/vnd.api+json"):
            answer = await ask(gateway, post(b"{", b"/context/approvals/ap_x", b"Content-Type: " + good))
            assert (answer.status, error_of(answer)["code"]) == (400, "invalid_json")


async def test_metrics_need_a_key_where_there_are_keys() -> None:
    """Scope `metrics` or `admin`; without keys, or where the configuration says so, everybody reads them."""
    async with through(keys=[*KEYS, key("lane")]) as (gateway, _):
        lines = {b"": 401, b"X-Gateway-Key: lane": 403, b"X-Gateway-Key: small": 200, b"Authorization: Bearer big": 200}
        for line, status in lines.items():
            assert (await ask(gateway, get(b"/metrics", *([line] if line else [])))).status == status
        for page in (b"/health/live", b"/health/ready", b"/"):
            assert (await ask(gateway, get(page))).status == 200
    async with through(keys=KEYS, metrics={"public": True}) as (gateway, _):
        assert await scrape(gateway)
    async with through() as (gateway, _):
        assert await scrape(gateway)
