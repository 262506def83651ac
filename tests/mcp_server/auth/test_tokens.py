"""Access tokens: those that are accepted, what they grant, and every way to forge one."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.config.schema.serve_oauth import ServeOAuth
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.mcp_server.auth.tokens import LEEWAY_S, AccessTokenVerifier
from gateway.testing.clock import ManualClock
from tests.mcp_server.auth.issuer import AUDIENCE, EC_KEY, ED_KEY, OTHER_RSA_KEY, RSA_KEY, Issuer, base64url, public

SCOPES = {"mcp:use": ["tools"], "mcp:decide": ["approve"]}


def settings(issuer: Issuer, **changes: object) -> ServeOAuth:
    named = {"issuer": issuer.url, "audience": AUDIENCE, "scopes": SCOPES, "tenant": "staff", **changes}
    return ServeOAuth.model_validate({name: value for name, value in named.items() if value is not None})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())  # that of the issuer


@pytest.fixture
async def tokens(issuer: Issuer, clock: ManualClock) -> AsyncIterator[AccessTokenVerifier]:
    tokens = AccessTokenVerifier(settings(issuer), clock=clock)
    yield tokens
    await tokens.close()


async def refusal(tokens: AccessTokenVerifier, token: str) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        await tokens.find_caller(token.encode())
    assert raised.value.facts.status == 401
    return raised.value


async def test_valid_token_grants_the_configured_scopes(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """The words of its claim grant what the configuration says of them, and its caller has the name of no key."""
    assert await tokens.find_caller(issuer.token().encode()) == Caller("oauth:anna", "staff", frozenset(["tools"]))
    both = issuer.token(scope="mcp:use mcp:decide tools admin", aud=["https://other", AUDIENCE], head={"typ": "at+JWT"})
    assert (await tokens.find_caller(both.encode())).scopes == {"tools", "approve"}
    assert (await tokens.find_caller(issuer.token(scope=None).encode())).scopes == frozenset()


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA_KEY, "RS512"), (RSA_KEY, "PS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA")],
)
async def test_public_key_signature_algorithms_are_accepted(
    issuer: Issuer, tokens: AccessTokenVerifier, key: Any, algorithm: str
) -> None:
    """Signatures with public keys are accepted."""
    issuer.keys = [public(key, kid="k1")]
    assert (await tokens.find_caller(issuer.token(key=key, alg=algorithm).encode())).name == "oauth:anna"


def unsigned(issuer: Issuer, alg: str, signature: bytes = b"", **head: object) -> str:
    parts = (json.dumps({"alg": alg, "kid": "k1", **head}).encode(), json.dumps(issuer.claims()).encode(), signature)
    return ".".join(map(base64url, parts))


def by_public_key(issuer: Issuer) -> str:
    """Return a token signed by HMAC with the issuer's public key as the secret."""
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    text = unsigned(issuer, "HS256").rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(text.encode(), pem)
    return f"{text}.{base64url(signature)}"


async def test_forged_tokens_are_rejected_with_one_message(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """All get the same answer, that of a wrong key."""
    good = issuer.token()
    head, claims, signature = good.split(".")
    more = base64url(json.dumps(issuer.claims(scope="mcp:decide")).encode())
    embedded = {"jwk": public(OTHER_RSA_KEY, kid="k1"), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/"}
    forged = {
        "none": unsigned(issuer, "none"),
        "None": unsigned(issuer, "None"),
        "no algorithm": unsigned(issuer, ""),
        "the public key as a secret": by_public_key(issuer),
        "another key": issuer.token(key=OTHER_RSA_KEY),
        "a key that it brings": issuer.token(key=OTHER_RSA_KEY, head=embedded),
        "an unknown key": issuer.token(key=OTHER_RSA_KEY, head={"kid": "k2"}),
        "a key of another type": issuer.token(key=EC_KEY, alg="ES256"),
        "a path as the key's id": issuer.token(key=OTHER_RSA_KEY, head={"kid": "../../dev/null"}),
        "changed claims": f"{head}.{more}.{signature}",
        "no signature": f"{head}.{claims}.",
        "an extension that must be known": issuer.token(head={"crit": ["x"], "x": 1}),
        "claims outside": unsigned(issuer, "RS256", b64=False, crit=["b64"]),
        "another kind of token": issuer.token(head={"typ": "logout+jwt"}),
        "no kind of token": issuer.token(head={"typ": 5}),
        "rubbish": "a.b.c",
        "deep": ".".join([base64url(b"[" * 9000), "e30", "AA"]),
        "not ASCII": "é.ü.ß",
        "nothing": "..",
    }
    answers = {name: await refusal(tokens, token) for name, token in forged.items()}
    assert {name: error.code for name, error in answers.items() if error.code != "invalid_api_key"} == {}
    assert len({error.message for error in answers.values()}) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": -LEEWAY_S - 5}, "it has expired"),
        ({"nbf": LEEWAY_S + 60}, "it is not valid yet"),
        ({"iat": LEEWAY_S + 60}, "it is not valid yet"),
        ({"aud": "https://other.example.com"}, "it is for another audience"),
        ({"aud": AUDIENCE + "/git"}, "it is for another audience"),
        ({"aud": []}, "one of the claims"),
        ({"aud": ["https://other.example.com", "*"]}, "it is for another audience"),
        ({"aud": [AUDIENCE, 5]}, "it is for another audience"),
        ({"aud": [[AUDIENCE]]}, "it is for another audience"),
        ({"aud": {AUDIENCE: True}}, "it is for another audience"),
        ({"aud": f"https://other.example.com {AUDIENCE}"}, "it is for another audience"),
        ({"iss": "https://other.example.com"}, "it is from another issuer"),
        ({"exp": None}, "one of the claims 'iss', 'aud' and 'exp' is missing"),
        ({"aud": None}, "one of the claims"),
        ({"iss": None}, "one of the claims"),
        ({"sub": None}, "its claim 'sub' is not a name"),
        ({"sub": ""}, "its claim 'sub' is not a name"),
        ({"sub": 5}, "its claim 'sub' is not a text"),
        *(
            ({"sub": f"an{odd}na"}, "its claim 'sub' is not a name of 1 to 128 visible characters")
            for odd in "\u200b\u202e\u00ad\ufeff\u3164\u034f\ufe0f\u2028\u0085\x1b\n\x00\U000e0041"
        ),
        ({"jti": 5}, "its claim 'jti' is not a text"),
    ],
)
async def test_unsuitable_tokens_of_the_issuer_are_rejected_with_a_reason(
    issuer: Issuer, tokens: AccessTokenVerifier, changes: dict[str, object], reason: str
) -> None:
    """The answer names the reason. Times are seconds from now."""
    now_s = int(time.time())
    told = {name: now_s + value if isinstance(value, float) else value for name, value in changes.items()}
    error = await refusal(tokens, issuer.odd_token(**told))
    assert error.code == "invalid_token" and reason in error.message


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
async def test_invalid_time_claim_is_rejected_and_named(
    issuer: Issuer, tokens: AccessTokenVerifier, claim: str
) -> None:
    """The answer names the claim, whatever it holds. Milliseconds would let a token live for 50,000 years."""
    odd: tuple[object, ...] = ("soon", "9999999999", "Infinity", [], {}, True, -1, 10**300, 1e300, time.time() * 1000)
    for value in (*odd, float("inf"), float("-inf"), float("nan")):
        error = await refusal(tokens, issuer.odd_token(**{claim: value}))
        assert (error.code, f"its claim {claim!r} is not a time in seconds" in error.message) == ("invalid_token", True)


async def test_token_expires_with_fractional_seconds(
    issuer: Issuer, tokens: AccessTokenVerifier, clock: ManualClock
) -> None:
    """Fractions of seconds are times, too."""
    now_s = clock.time()
    token = issuer.token(exp=now_s + 60.5, nbf=now_s + 0.5, iat=now_s).encode()
    clock.advance(60.25 + LEEWAY_S)
    assert (await tokens.find_caller(token)).name == "oauth:anna"
    clock.advance(0.5)
    assert "it has expired" in (await refusal(tokens, token.decode())).message


async def test_token_type_header_must_be_an_access_token_type(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """RFC 9068 asks for at+jwt; most issuers write JWT, or none."""
    for kind in (None, "JWT", "application/jwt", "at+jwt", "AT+JWT", "application/at+jwt"):
        assert (await tokens.find_caller(issuer.odd_token(head={"typ": kind}).encode())).name == "oauth:anna"
    for kind in ("", "id+jwt", "dpop+jwt", "secevent+jwt", "application/application/jwt", "text/jwt", 5, ["JWT"]):
        error = await refusal(tokens, issuer.odd_token(head={"typ": kind}))
        assert error.code == "invalid_api_key", kind


async def test_id_token_is_rejected(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """Also where its audience is that of the gateway; one that says that it is an access token may have any claim."""
    for kind in (None, "JWT"):
        error = await refusal(tokens, issuer.odd_token(head={"typ": kind}, at_hash="MTIz"))
        assert error.code == "invalid_token" and "it is an ID token: send the access token" in error.message
    assert (
        await tokens.find_caller(issuer.odd_token(head={"typ": "at+jwt"}, at_hash="MTIz").encode())
    ).name == "oauth:anna"


async def test_token_algorithm_selects_among_keys_with_one_id(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """The algorithm of a token chooses among them, and a key that names an algorithm checks no other."""
    issuer.keys = [public(EC_KEY, kid="k1"), public(RSA_KEY, kid="k1", alg="PS256"), public(ED_KEY, kid="k1")]
    for key, algorithm in ((EC_KEY, "ES256"), (RSA_KEY, "PS256"), (ED_KEY, "EdDSA")):
        assert (await tokens.find_caller(issuer.token(key=key, alg=algorithm).encode())).name == "oauth:anna"
    for algorithm in ("RS256", "PS384"):
        assert (await refusal(tokens, issuer.token(alg=algorithm))).code == "invalid_api_key"
    for head in ({"alg": ["RS256"]}, {"alg": "rs256"}, {"kid": 5}, {"kid": ["k1"]}, {"kid": ""}, {"kid": "K1"}):
        assert (await refusal(tokens, issuer.odd_token(head=head))).code == "invalid_api_key", head


async def test_rsa_key_below_2048_bits_is_rejected(issuer: Issuer, tokens: AccessTokenVerifier) -> None:
    """RFC 7518 asks for 2048 bits."""
    short = rsa.generate_private_key(65537, 1024)
    issuer.keys.append(public(short, kid="short"))
    head, claims, _ = issuer.token(head={"kid": "short"}).split(".")
    text = f"{head}.{claims}"
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(text.encode(), short)
    assert (await refusal(tokens, f"{text}.{base64url(signature)}")).code == "invalid_api_key"


@pytest.mark.parametrize(
    ("claim", "claims", "granted"),
    [
        ("roles", {"roles": ["mcp:use", 5, "mcp:decide"]}, {"tools", "approve"}),
        ("realm_access.roles", {"realm_access": {"roles": ["mcp:use"]}}, {"tools"}),
        ("https://x.example/roles", {"https://x.example/roles": "mcp:decide"}, {"approve"}),
        ("realm_access.roles", {"realm_access": ["mcp:use"]}, set()),
        ("roles", {"roles": {"mcp:use": True}}, set()),
        ("roles", {"scope": "mcp:use"}, set()),
    ],
)
async def test_scope_claim_may_be_text_or_list_at_any_depth(
    issuer: Issuer, clock: ManualClock, claim: str, claims: dict[str, object], granted: set[str]
) -> None:
    """In a text or a list, at the top or below."""
    tokens = AccessTokenVerifier(settings(issuer, scope_claim=claim), clock=clock)
    found = await tokens.find_caller(issuer.token(**{"scope": None, **claims}).encode())
    assert found.scopes == granted


async def test_tenant_and_caller_are_read_from_configured_claims(issuer: Issuer, clock: ManualClock) -> None:
    """Without them a token says for nobody whom it is for."""
    tokens = AccessTokenVerifier(settings(issuer, tenant=None, tenant_claim="org", caller_claim="email"), clock=clock)
    found = await tokens.find_caller(issuer.token(org="blue", email="a@example.com").encode())
    assert (found.name, found.tenant) == ("oauth:a@example.com", "blue")
    for org in (None, "", ["blue"], 5, "a\nb", "x" * 129):
        error = await refusal(tokens, issuer.token(org=org, email="a@example.com"))
        assert error.code == "invalid_token" and "its claim 'org' is not a name" in error.message
