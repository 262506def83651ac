"""The headers of the context lane: what of a client's goes on, and what an answer says of who gave it."""

import hashlib

import pytest

from gateway.auth.keyring import Key, KeyRing
from gateway.context.headers import build_answerer_headers, find_credential_header, select_forwarded_headers
from gateway.contracts.caller import Caller
from gateway.contracts.model_names import MODEL_CHARS
from gateway.model.fallback_chain import By
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live_run import LiveRun
from tests.agent.models import exchange

from .contexts import NOBODY, head


def test_client_headers_are_forwarded_except_message_and_gateway_headers() -> None:
    """In order, byte for byte; credentials apart."""
    kept = (
        b"User-Agent: openai",
        b"X-Stainless-Lang: py",
        b"traceparent: 00-1",
        b"OpenAI-Organization:  o ",
        b"X-Odd:",
    )
    dropped = (
        b"Content-Type: application/json",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        b"Accept: application/json",
        b"Accept-Encoding: gzip, br",
        b"Expect: 100-continue",
        b"Idempotency-Key: k",
        b"Cookie: session=1",
        b"Origin: http://localhost",
        b"Connection: keep-alive, X-Nominated",
        b"X-Nominated: 1",
        b"Keep-Alive: timeout=5",
        b"Trailer: X-Checked",
        b"Content-Digest: sha-256=:x:",
        b"Accept_Encoding: br",
        b"TE: trailers",
        b"X-Context-Chain: main",
        b"X-Gateway-Key: gw-key",
    )
    credentials = (b"authorization: Bearer sk-client", b"X-API-Key: sk-client")
    mixed = [line for group in zip(dropped[:5], kept, dropped[5:10], strict=True) for line in group]
    lines, credential = select_forwarded_headers(head(*mixed, *dropped[10:], *credentials), NOBODY.consumed)
    assert lines == b"".join(line + b"\r\n" for line in kept)
    assert credential == b"".join(line + b"\r\n" for line in credentials)


def test_underscores_in_header_names_are_treated_as_hyphens() -> None:
    """A credential is one however it is spelt, and what the client nominated stays here as it is spelt, too."""
    lines, credential = select_forwarded_headers(
        head(
            b"X_Api_Key: sk-client", b"Connection: foo_bar, x-nominated", b"Foo_Bar: 1", b"X_Nominated: 1", b"X_Odd: 2"
        ),
        NOBODY.consumed,
    )
    assert (lines, credential) == (b"X_Odd: 2\r\n", b"X_Api_Key: sk-client\r\n")


@pytest.mark.parametrize("line", [b"X_Api_Key: gw-key", b"My_Key: gw-key", b"api_key: Token gw-key", b"x-copy: gw-key"])
def test_copy_of_the_gateway_key_in_any_header_is_not_forwarded(line: bytes) -> None:
    """Whatever the header is called."""
    asked = head(b"Authorization: Bearer gw-key", line)
    key = Key(hashlib.sha256(b"gw-key").digest(), Caller("ada", "team", frozenset(("context",))))
    ring = KeyRing([key])
    identity = ring.identify(asked, upstream_has_key=True, scope="context")
    assert select_forwarded_headers(asked, identity.consumed) == (b"", b"")


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_gateway_key_is_not_forwarded(name: bytes) -> None:
    """In whichever header it came."""
    asked = head(name + b": Bearer gw-key", b"X-Gateway-Key: gw-key")
    assert select_forwarded_headers(asked, frozenset((name, b"x-gateway-key"))) == (b"", b"")


def test_credential_header_matches_the_header_the_client_used() -> None:
    """In Authorization where it put none."""
    assert (
        find_credential_header(head(b"X-API-Key: k")) == b"x-api-key"
        and find_credential_header(head()) == b"authorization"
    )


@pytest.mark.parametrize(
    ("asked", "model", "told"),
    [
        ("m", "m", None),
        ("fast", "big", "big"),
        ("fast", "m" * MODEL_CHARS, "m" * MODEL_CHARS),
        ("fast", "m" * (MODEL_CHARS + 1), None),
        ("fast", "big\r\nX-Evil: 1", None),
        ("fast", "größer", None),
    ],
)
async def test_response_headers_name_the_upstream_and_a_differing_model(
    asked: str, model: str, told: str | None
) -> None:
    """The model only where it is another one, in characters that a header can have."""
    run = LiveRun(exchange(model=asked), RequestKey("f", None, repeats=False), now_s=0.0)
    assert build_answerer_headers(run) == {}
    run.answer.by = By("up", "h:1", model)
    assert build_answerer_headers(run) == {
        "X-Context-Upstream": "up",
        **({} if told is None else {"X-Context-Model": told}),
    }
