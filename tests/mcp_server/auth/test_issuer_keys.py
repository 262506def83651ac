"""The keys of an issuer: when they are read, how long they serve, and which of them sign tokens."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.contracts.errors import GatewayError
from gateway.mcp_server.auth.issuer_keys import FRESH_S, PAUSE_S, TRUSTED_S, IssuerKeys, UnknownKeyError, parse_keys
from gateway.testing.clock import ManualClock
from tests.mcp_server.auth.issuer import EC_KEY, ED_KEY, OTHER_RSA_KEY, RSA_KEY, Issuer, base64url, public


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
async def keys(issuer: Issuer, clock: ManualClock) -> AsyncIterator[IssuerKeys]:
    keys = IssuerKeys(issuer.url, None, clock=clock)
    yield keys
    await keys.close()


async def test_concurrent_lookups_fetch_the_issuer_keys_once(
    issuer: Issuer, keys: IssuerKeys, caplog: pytest.LogCaptureFixture
) -> None:
    """The metadata leads to them; fifty tokens at once are one request, which nobody logs."""
    caplog.set_level("INFO")
    found = await asyncio.gather(*(keys.find_key("k1", "RS256") for _ in range(50)))
    assert found == [RSA_KEY.public_key()] * 50 and issuer.asked == 1
    assert "httpx2" not in {record.name for record in caplog.records}


async def test_stale_issuer_keys_are_refreshed_in_the_background(
    issuer: Issuer, keys: IssuerKeys, clock: ManualClock
) -> None:
    """No call waits for that; afterwards a withdrawn key is unknown."""
    await keys.find_key("k1", "RS256")
    clock.advance(FRESH_S + 1)
    issuer.keys = [public(OTHER_RSA_KEY, kid="k2")]
    assert await keys.find_key("k1", "RS256") == RSA_KEY.public_key()
    assert await keys.find_key("k2", "RS256") == OTHER_RSA_KEY.public_key()  # waits for the request under way
    with pytest.raises(UnknownKeyError):
        await keys.find_key("k1", "RS256")
    assert issuer.asked == 2


async def test_unknown_key_ids_trigger_a_rate_limited_refresh(
    issuer: Issuer, keys: IssuerKeys, clock: ManualClock
) -> None:
    """At most one request in PAUSE_S, whoever asks for whatever."""
    await keys.find_key("k1", "RS256")
    issuer.keys.append(public(OTHER_RSA_KEY, kid="k2"))
    for _ in range(50):
        with pytest.raises(UnknownKeyError):
            await keys.find_key("k2", "RS256")
    assert issuer.asked == 1
    clock.advance(PAUSE_S)
    assert await keys.find_key("k2", "RS256") == OTHER_RSA_KEY.public_key()
    for i in range(50):
        with pytest.raises(UnknownKeyError):
            await keys.find_key(f"forged{i}", "RS256")
    assert issuer.asked == 2


async def test_cached_keys_remain_trusted_for_a_time_without_the_issuer(
    issuer: Issuer, keys: IssuerKeys, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Then none is trusted, until the issuer answers again."""
    await keys.find_key("k1", "RS256")
    issuer.status = 500
    clock.advance(TRUSTED_S)
    assert await keys.find_key("k1", "RS256") == RSA_KEY.public_key()
    clock.advance(PAUSE_S)
    for _ in range(2):
        with pytest.raises(GatewayError) as raised:
            await keys.find_key("k1", "RS256")
        assert (raised.value.code, raised.value.retry_after_s) == ("issuer_unavailable", PAUSE_S)
    assert "could not be read: the issuer answered with HTTP 500" in caplog.text
    issuer.status = 200
    clock.advance(PAUSE_S)
    assert await keys.find_key("k1", "RS256") == RSA_KEY.public_key()


@pytest.mark.parametrize("metadata", [{"issuer": "https://other"}, {"jwks_uri": "https://["}, {"jwks_uri": 1}])
async def test_invalid_issuer_metadata_yields_no_keys(
    issuer: Issuer, keys: IssuerKeys, metadata: dict[str, object]
) -> None:
    """There are no keys then, and no token is accepted."""
    issuer.metadata = metadata
    with pytest.raises(GatewayError, match="cannot check access tokens now"):
        await keys.find_key("k1", "RS256")
    assert issuer.asked == 0


async def test_empty_key_set_keeps_the_known_keys(issuer: Issuer, clock: ManualClock) -> None:
    """An issuer without keys is one that fails: the known ones are not given up for it."""
    keys = IssuerKeys(issuer.url, issuer.jwks_url, clock=clock)
    await keys.find_key("k1", "RS256")
    issuer.keys = []
    clock.advance(PAUSE_S)
    with pytest.raises(UnknownKeyError):
        await keys.find_key("k2", "RS256")
    assert await keys.find_key("k1", "RS256") == RSA_KEY.public_key()


async def test_key_set_is_limited_in_number_and_size(
    issuer: Issuer, keys: IssuerKeys, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and the first ones serve. An answer that is too long is none."""
    issuer.keys = [public(RSA_KEY, kid=f"k{i}") for i in range(100)]
    assert await keys.find_key("k99", "RS256") == RSA_KEY.public_key() and "has 100 keys" not in caplog.text
    issuer.keys += [public(RSA_KEY, kid="k100")]
    clock.advance(PAUSE_S)
    with pytest.raises(UnknownKeyError):
        await keys.find_key("k100", "RS256")
    assert await keys.find_key("k99", "RS256") == RSA_KEY.public_key()
    assert f"the issuer {issuer.url} has 101 keys: only the first 100 are used" in caplog.text
    issuer.keys = [public(RSA_KEY, kid="k1", x5c="A" * (256 << 10))]
    clock.advance(TRUSTED_S + 1)
    with pytest.raises(GatewayError, match="cannot check access tokens now"):
        await keys.find_key("k1", "RS256")
    assert "the issuer's answer is not read: it is longer than 262144 bytes" in caplog.text


async def test_a_redirect_is_not_followed(issuer: Issuer, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """It could lead anywhere, also into the operator's network; the log says what to do."""
    keys = IssuerKeys(issuer.url, f"{issuer.url}/moved", clock=clock)
    with pytest.raises(GatewayError, match="cannot check access tokens now"):
        await keys.find_key("k1", "RS256")
    assert issuer.asked == 0
    assert "HTTP 302, and no redirect is followed: configure the address that it leads to" in caplog.text


@pytest.mark.parametrize("bits", [1024, 16_384, 1_500_000])
async def test_rsa_keys_of_unsuitable_size_are_ignored(
    issuer: Issuer, keys: IssuerKeys, caplog: pytest.LogCaptureFixture, bits: int
) -> None:
    """Too short to trust, or long enough to cost: the others serve, and the log names the key."""
    modulus = base64url((1 << bits - 1 | 1).to_bytes(bits // 8, "big"))
    issuer.keys += [{"kty": "RSA", "kid": "odd", "n": modulus, "e": "AQAB"}]
    assert await keys.find_key("k1", "RS256") == RSA_KEY.public_key()
    with pytest.raises(UnknownKeyError):
        await keys.find_key("odd", "RS256")
    assert f"the issuer {issuer.url} has an RSA key of {bits} bits (kid 'odd'), which is not used" in caplog.text


def test_parse_keys_selects_only_signing_keys() -> None:
    """Each with the algorithms of its type, or the one that it names. No secret, no key for encryption, no odd one."""
    rsa = public(RSA_KEY, kid="a")
    usable = [rsa, {**rsa, "alg": "PS256"}, public(EC_KEY, kid="b"), public(ED_KEY), {**rsa, "key_ops": ["verify"]}]
    found = parse_keys({"keys": usable}, "i")
    assert [key.kid for key in found] == ["a", "a", "b", None, "a"]
    assert [sorted(key.algorithms)[0] for key in found] == ["PS256", "PS256", "ES256", "EdDSA", "PS256"]
    assert [len(key.algorithms) for key in found] == [6, 1, 1, 1, 6]
    odd: list[object] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"},
        {**rsa, "alg": "HS256"},
        {**rsa, "alg": "none"},
        {**rsa, "alg": ["RS256"]},
        {**rsa, "use": "enc"},
        {**rsa, "key_ops": ["encrypt"]},
        {**rsa, "key_ops": 1},
        {**rsa, "d": "AQAB"},
        {**rsa, "n": "!"},
        {**rsa, "n": 5},
        {**rsa, "kid": 5},
        {"kty": "EC", "crv": "P-256"},
        {"kty": "EC", "crv": ["P-256"]},
        {"kty": "EC", "crv": "secp256k1"},
        {"kty": []},
        {},
        None,
        "x",
    ]
    assert parse_keys({"keys": [*odd, rsa]}, "i") == found[:1]
    for nothing in ({}, {"keys": None}, {"keys": {}}):
        assert parse_keys(nothing, "i") == ()


async def test_token_without_a_key_id_requires_a_single_candidate_key(issuer: Issuer, clock: ManualClock) -> None:
    """There must be a single key that may have signed it."""
    keys = IssuerKeys(issuer.url, issuer.jwks_url, clock=clock)
    assert await keys.find_key(None, "RS256") == RSA_KEY.public_key()
    issuer.keys = [public(RSA_KEY), public(OTHER_RSA_KEY), public(EC_KEY)]
    clock.advance(FRESH_S + 1)
    with pytest.raises(UnknownKeyError):
        await keys.find_key("k9", "RS256")
    assert await keys.find_key(None, "ES256") == EC_KEY.public_key()
    with pytest.raises(UnknownKeyError):
        await keys.find_key(None, "RS256")
