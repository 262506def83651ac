"""Keys of the gateway, and a client's credentials beside the operator's: none goes upstream, wherever it stands."""

import hashlib
from base64 import b64encode

import pytest

from gateway.testing.messages import split_head

from .through import ask, client_of, error_of, get, post, through
from .tunnels import WEBSOCKET, echo

ALICE = b"gw-alice-7b1f0c22d94e4f6c8a35"
BOB = b"gw+bob/0d6c1a9e55b84c3f9e0=="
SHORT = b"gw-carol"
NAMES = {ALICE: "alice", BOB: "bob", SHORT: "carol"}
KEYS = [
    {"name": name, "sha256": hashlib.sha256(key).hexdigest(), "scopes": ["passthrough", "context"]}
    for key, name in NAMES.items()
]
OWN = {"api_key": "sk-operator"}
ASKED = b"X-Gateway-Key: " + ALICE
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@pytest.mark.parametrize("upstream", [OWN, {}])
@pytest.mark.parametrize("key", [ALICE, BOB, SHORT])
@pytest.mark.parametrize(
    "line",
    [
        b"Cookie: theme=dark; gw=%b",
        b"Cookie: %b",
        b'Cookie: gw="%b"',
        b"api-key: %b",
        b"X-Goog-Api-Key: %b",
        b"X_Api_Key: Bearer %b",
        b"Authorization: Token %b",
        b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.%b",
    ],
)
async def test_gateway_key_is_never_forwarded_in_a_header(line: bytes, key: bytes, upstream: dict[str, object]) -> None:
    """In both lanes; also that of another caller, and one that is short or has the characters of base64."""
    async with through(upstream=upstream, keys=KEYS) as (gateway, fake):
        await ask(gateway, get(b"/v1/x", ASKED, line % key, b"A: 1"))
        await ask(gateway, post(CHAT, b"/context/v1/chat/completions", ASKED, line % key, b"A: 1"))
    assert [key in request.raw_head for request in fake.requests] == [False, False]
    assert [request.list_values(b"a") for request in fake.requests] == [[b"1"], [b"1"]]


@pytest.mark.parametrize("line", [b"Authorization: Bearer %b", b"x-api-key: %b"])
async def test_single_gateway_key_authorizes_a_keyless_upstream(line: bytes) -> None:
    """As SDKs send it, in both lanes. It goes no further; a key that is none of ours opens nothing."""
    async with through(keys=KEYS) as (gateway, fake):
        await ask(gateway, get(b"/v1/x", line % ALICE))
        await ask(gateway, post(CHAT, b"/context/v1/chat/completions", line % ALICE))
        refused = await ask(gateway, get(b"/v1/x", line % b"sk-of-the-upstream"))
        assert (refused.status, error_of(refused)["code"]) == (401, "missing_api_key")
    assert [ALICE in request.raw_head for request in fake.requests] == [False, False]


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: Basic " + b64encode(b"user:" + ALICE),
        b"Cookie: gw=" + ALICE.replace(b"-", b"%2D"),
        b"Cookie: session=" + b"a" + ALICE + b"z",
        b"Referer: http://gw.example/?key=" + ALICE,
        b"X-Forwarded-Authorization: Bearer " + BOB.rstrip(b"=").replace(b"+", b"+") + b"==",
    ],
)
async def test_encoded_gateway_key_is_removed_from_headers(line: bytes) -> None:
    """Percent-encoded, as a password, as a part of a word, and in fields that are for something else."""
    async with through(keys=KEYS) as (gateway, fake):
        await ask(gateway, get(b"/v1/x", ASKED, line, b"A: 1"))
    assert [line.split(b":")[0] for line in fake.requests[0].raw_head.split(b"\r\n")[1:-2]] == [b"Host", b"A"]


@pytest.mark.parametrize(
    ("query", "kept", "kept_beside_own"),
    [
        (b"?key=" + ALICE, b"", b""),
        (b"?a=1&api-key=" + ALICE + b"&b=2", b"?a=1&b=2", b"?a=1&b=2"),
        (b"?x=" + ALICE.replace(b"-", b"%2d"), b"", b""),
        (b"?x=" + BOB.replace(b"+", b"%2B"), b"", b""),
        (b"?a=1;key=" + SHORT + b"&b=2", b"?b=2", b"?b=2"),
        (b"?key=AIza&b=2", b"?key=AIza&b=2", b"?b=2"),
        (b"?api%2Dkey=azure&API_KEY=x&access_token=t", b"?api%2Dkey=azure&API_KEY=x&access_token=t", b""),
        (b"?a=1;api-key=x", b"?a=1;api-key=x", b""),
        (b"?metadata[key]=v&keys=2&after=x&monkey=", *[b"?metadata[key]=v&keys=2&after=x&monkey="] * 2),
    ],
)
async def test_no_key_goes_upstream_in_the_query(query: bytes, kept: bytes, kept_beside_own: bytes) -> None:
    """Nor does a client's own where the upstream has a key of the operator; all other parameters stay as they came."""
    for upstream, expected in (({}, kept), (OWN, kept_beside_own)):
        async with through(upstream=upstream, keys=KEYS) as (gateway, fake):
            await ask(gateway, get(b"/v1/x" + query, ASKED))
        assert fake.requests[0].target == b"/v1/x" + expected


async def test_a_key_in_the_path_is_refused() -> None:
    """It cannot be taken out of there; the text does not repeat it."""
    async with through(keys=KEYS) as (gateway, fake):
        response = await ask(gateway, get(b"/v1/" + ALICE + b"/x", ASKED))
    assert (response.status, error_of(response)["code"]) == (400, "invalid_field")
    assert ALICE not in response.raw and not fake.requests


@pytest.mark.parametrize("name", [b"api-key", b"X-Goog-Api-Key", b"x_goog_api_key", b"Ocp-Apim-Subscription-Key"])
@pytest.mark.parametrize("keys", [KEYS, []])
async def test_client_credential_is_dropped_when_the_operator_has_a_key(name: bytes, keys: list[object]) -> None:
    """Without `auth_header`, too, and in both lanes."""
    sent = (ASKED, name + b": client-secret")
    async with through(upstream=OWN, keys=keys) as (gateway, fake):
        await ask(gateway, get(b"/v1/x", *sent))
        await ask(gateway, post(CHAT, b"/context/v1/chat/completions", *sent))
    for request in fake.requests:
        assert b"client-secret" not in request.raw_head
        assert request.list_values(b"authorization") == [b"Bearer sk-operator"]
    assert len(fake.requests) == 2


async def test_a_handshake_loses_the_key_and_keeps_its_other_subprotocols() -> None:
    """Browsers put the key for a WebSocket there; the query is cleaned in a handshake, too."""
    offered = b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.client-secret,openai-beta.realtime-v1"
    target = b"/v1/realtime?model=x&key=client-secret"
    async with through(echo, upstream=OWN) as (gateway, fake), client_of(gateway) as client:
        await client.send(get(target, *WEBSOCKET, offered))
        split_head(await client.read_head())
    (request,) = fake.requests
    assert request.target == b"/v1/realtime?model=x" and b"client-secret" not in request.raw_head
    assert request.list_values(b"sec-websocket-protocol") == [b"realtime, openai-beta.realtime-v1"]


async def test_client_credentials_are_forwarded_to_a_keyless_upstream() -> None:
    """As they came, with its cookies and its query."""
    lines = [b"Cookie: a=b; c=%20d", b"api-key: mine", b"Sec-WebSocket-Protocol: openai-insecure-api-key.mine"]
    async with through(keys=KEYS) as (gateway, fake):
        await ask(gateway, get(b"/v1/x?key=mine", ASKED, *lines))
    assert fake.requests[0].target == b"/v1/x?key=mine"
    assert fake.requests[0].raw_head.split(b"\r\n")[2:-2] == lines
