"""Credentials are read in one place, by the hash of the whole key, in every spelling; no gateway key ever goes on."""

import hashlib
from dataclasses import replace
from ipaddress import ip_network
from itertools import permutations

import pytest

from gateway.auth.beats import STILL_S
from gateway.auth.keyring import Identity, Key, KeyRing, LentKeys, StoredKeys, get_peer_address
from gateway.contracts.caller import LOCAL, Caller, KeyBounds
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits, RequestHead, parse_request_head
from gateway.testing.clock import ManualClock
from tests.lanes.assembled import HERE, From

ALICE = b"gw-alice-7b1f0c22d94e4f6c8a35"
BOB = b"gw-bob-0d6c1a9e55b84c3f9e02"
UPSTREAM = b"sk-upstream-aaaaaaaaaaaaaaaaaaaa"
CALLERS = {
    ALICE: Caller("alice", "team-a", frozenset(("passthrough", "context"))),
    BOB: Caller("bob", "team-b", frozenset(("context",))),
}
RING = KeyRing(Key(hashlib.sha256(key).digest(), caller) for key, caller in CALLERS.items())


def asking(*fields: bytes) -> RequestHead:
    return parse_request_head(b"\r\n".join((b"GET /v1/models HTTP/1.1", b"Host: h", *fields, b"", b"")), HeadLimits())


def identify(
    *fields: bytes, upstream_has_key: bool = True, scope: str = "passthrough", ring: KeyRing = RING
) -> Identity:
    return ring.identify(asking(*fields), upstream_has_key=upstream_has_key, scope=scope)


def refusal(
    *fields: bytes, upstream_has_key: bool = True, scope: str = "passthrough", ring: KeyRing = RING
) -> tuple[int, str]:
    """Status and code. No credential is in the text."""
    with pytest.raises(GatewayError) as refused:
        identify(*fields, upstream_has_key=upstream_has_key, scope=scope, ring=ring)
    error = refused.value
    for secret in (ALICE, BOB, UPSTREAM, b"guess"):
        assert secret.decode() not in f"{error.message} {error.param} {error!r}"
    return error.facts.status, error.code


def leftovers(identity: Identity, *fields: bytes) -> bytes:
    """The credential headers that would go on."""
    return b"".join(field.line for field in asking(*fields).fields if field.name not in identity.consumed)


# Who calls.


@pytest.mark.parametrize(
    "field",
    [
        *(b"X-Gateway-Key: " + ALICE, b"x-gateway-key:" + ALICE, b"X-GATEWAY-KEY: \t" + ALICE + b" "),
        *(b"Authorization: Bearer " + ALICE, b"authorization: bearer " + ALICE, b"AUTHORIZATION: BEARER  " + ALICE),
        *(b"x-api-key: " + ALICE, b"X-Api-Key:" + ALICE),
    ],
)
def test_every_spelling_means_the_same_caller(field: bytes) -> None:
    """K1: one function reads them all, so that the scopes hold for all."""
    assert identify(field).caller == CALLERS[ALICE]
    assert refusal(field, scope="admin") == (403, "scope_missing")
    assert refusal(field.replace(ALICE, BOB)) == (403, "scope_missing")
    assert refusal(field.replace(ALICE, ALICE + b"x")) == (401, "invalid_api_key")


def test_missing_scope_is_refused_by_name() -> None:
    """The text names the scope that is missing."""
    assert identify(b"X-Gateway-Key: " + BOB, scope="context").caller.tenant == "team-b"
    with pytest.raises(GatewayError, match="lacks the scope 'approve'"):
        identify(b"X-Gateway-Key: " + BOB, scope="approve")


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"X-Gateway-Key:",),
        (b"Authorization: Bearer",),
        (b"Authorization: Bearer  ",),
        (b"Authorization:",),
        (b"Authorization: Basic " + ALICE,),
        (b"Authorization: " + ALICE,),
        (b"Authorization: Bearer\t" + ALICE,),
        (b"x-api-key:",),
        (b"api-key: " + ALICE,),
        (b"Cookie: x-gateway-key=" + ALICE,),
        (b"X-Gateway-Key: ", b"Authorization: Basic x"),
    ],
)
def test_request_without_a_key_returns_401(fields: tuple[bytes, ...]) -> None:
    """Empty, of another scheme, or in another place: there is no key."""
    assert refusal(*fields) == (401, "missing_api_key")


def test_missing_key_error_names_the_header_to_use() -> None:
    """X-Gateway-Key is for who has a key for the upstream, too."""
    with pytest.raises(GatewayError, match="Authorization: Bearer <key>"):
        identify()
    with pytest.raises(GatewayError, match="in the header X-Gateway-Key beside a key for the upstream"):
        identify(upstream_has_key=False)


def test_x_gateway_key_comes_before_authorization_and_that_before_x_api_key() -> None:
    """A wrong key in the first place is wrong, whatever the next one holds."""
    gateway, bearer, api = b"X-Gateway-Key: %b", b"Authorization: Bearer %b", b"x-api-key: %b"
    for first, second in ((gateway, bearer), (gateway, api), (bearer, api)):
        for fields in permutations((first % ALICE, second % BOB)):
            assert identify(*fields).caller.name == "alice"
        for fields in permutations((first % b"guess", second % ALICE)):
            assert refusal(*fields) == (401, "invalid_api_key")
    assert identify(b"X-Gateway-Key:", bearer % ALICE).caller.name == "alice"


def test_gateway_key_may_use_any_header_without_an_upstream_key() -> None:
    """An SDK has one place for a key. Ours goes no further; what is none of ours is the credential for the upstream."""
    bearer, api = b"Authorization: Bearer %b", b"x-api-key: %b"
    for field in (bearer, api):
        identity = identify(field % ALICE, upstream_has_key=False)
        assert identity.caller.name == "alice" and leftovers(identity, field % ALICE) == b"Host: h\r\n"
        assert refusal(field % UPSTREAM, upstream_has_key=False) == (401, "missing_api_key")
        assert refusal(field % BOB, scope="approve", upstream_has_key=False) == (403, "scope_missing")
    for ours, theirs in ((b"X-Gateway-Key: %b", bearer), (b"X-Gateway-Key: %b", api), (api, bearer), (bearer, api)):
        for fields in permutations((ours % ALICE, theirs % UPSTREAM)):
            identity = identify(*fields, upstream_has_key=False)
            assert identity.caller.name == "alice"
            assert leftovers(identity, *fields) == b"Host: h\r\n" + theirs % UPSTREAM + b"\r\n"
    wrong = (b"X-Gateway-Key: guess", bearer % ALICE)
    assert refusal(*wrong, upstream_has_key=False) == (401, "invalid_api_key")


@pytest.mark.parametrize("name", [b"X-Gateway-Key", b"Authorization", b"x-api-key"])
@pytest.mark.parametrize("values", [(ALICE, ALICE), (ALICE, BOB), (b"", ALICE), (ALICE, b"")])
@pytest.mark.parametrize("upstream_has_key", [True, False])
def test_a_credential_that_comes_twice_is_refused(
    name: bytes, values: tuple[bytes, bytes], upstream_has_key: bool
) -> None:
    """Whoever would have read which, in any case of the name; the header is named, its values are not."""
    fields = [spelled + b": Bearer " + value for spelled, value in zip((name, name.swapcase()), values, strict=True)]
    for others in ((), (b"X-Gateway-Key: " + ALICE,)):
        if name == b"X-Gateway-Key" or others:
            with pytest.raises(GatewayError) as refused:
                identify(*fields, *others, upstream_has_key=upstream_has_key)
            assert (refused.value.code, refused.value.facts.status) == ("invalid_header", 400)
            assert refused.value.param in (name.decode().lower(), "x-gateway-key")


# By the whole hash.


@pytest.mark.parametrize("shared", [0, 1, 20, len(ALICE) - 1])
def test_key_guess_with_a_shared_prefix_is_refused(shared: int) -> None:
    """K3: the look-up is by SHA-256 of the whole key, so that a prefix brings nobody closer."""
    for guess in (
        ALICE[:shared],
        ALICE[:shared] + b"guess",
        ALICE[:shared] + bytes(len(ALICE) - shared).replace(b"\0", b"z"),
    ):
        if guess:
            assert refusal(b"X-Gateway-Key: " + guess) == (401, "invalid_api_key")


def test_key_hash_differing_in_one_byte_is_refused() -> None:
    """Neither a part of the digest nor the digest itself is a key."""
    digest = hashlib.sha256(ALICE).digest()
    near = [digest[:-1] + bytes((digest[-1] ^ 1,)), bytes((digest[0] ^ 1,)) + digest[1:], digest[:31], digest[:20], b""]
    ring = KeyRing(Key(one, CALLERS[ALICE]) for one in near)
    assert refusal(b"X-Gateway-Key: " + ALICE, ring=ring) == (401, "invalid_api_key")
    assert refusal(b"X-Gateway-Key: " + digest.hex().encode()) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "odd", [b"\xff\xfe\x80", "ключ".encode(), b"a b\tc", b"x" * 30_000, b'"' + ALICE + b'"', ALICE.upper()]
)
def test_malformed_keys_return_401(odd: bytes) -> None:
    """Bytes beyond ASCII, white space, great length: 401 like any other guess, never an error of ours."""
    assert refusal(b"X-Gateway-Key: " + odd) == (401, "invalid_api_key")
    assert refusal(b"Authorization: Bearer " + odd) == (401, "invalid_api_key")


def test_a_key_may_have_bytes_beyond_ascii() -> None:
    """Keys are bytes."""
    key = "schlüssel-大".encode()
    ring = KeyRing([Key(hashlib.sha256(key).digest(), CALLERS[ALICE])])
    assert identify(b"X-Gateway-Key: " + key, ring=ring).caller.name == "alice"


def test_keyring_holds_hashes_and_no_key_text() -> None:
    """What is kept is the hash and the caller."""
    assert ALICE not in repr(vars(RING)).encode() and ALICE.hex() not in repr(vars(RING))


# What goes on.


@pytest.mark.parametrize("upstream_has_key", [True, False])
@pytest.mark.parametrize(
    "copy",
    [
        *(b"Authorization: Bearer %b", b"authorization:bearer %b ", b"x-api-key: %b", b"X-API-KEY: \t%b"),
        *(b"Authorization: %b", b"Authorization: Token %b", b"x-api-key: Bearer %b", b"Authorization: Bearer\t%b"),
    ],
)
def test_gateway_key_is_never_forwarded(copy: bytes, upstream_has_key: bool) -> None:
    """However many of the credential headers it came in, and however it was spelled there."""
    fields = (b"X-Gateway-Key: " + ALICE, copy % ALICE)
    identity = identify(*fields, upstream_has_key=upstream_has_key)
    assert ALICE not in leftovers(identity, *fields)


@pytest.mark.parametrize("copy", [b"Authorization: Bearer %b", b"x-api-key: %b"])
def test_second_gateway_key_is_never_forwarded(copy: bytes) -> None:
    """It is somebody's key to this gateway, and no upstream's business."""
    fields = (b"X-Gateway-Key: " + ALICE, copy % BOB)
    assert BOB not in leftovers(identify(*fields, upstream_has_key=False), *fields)


def test_upstream_credentials_are_forwarded() -> None:
    """Only what is the gateway's is taken away."""
    fields = (b"x-api-key: " + UPSTREAM, b"Authorization: Basic dTpw", b"Cookie: a=b", b"X-Gateway-Key: " + ALICE)
    identity = identify(*fields, upstream_has_key=False)
    assert leftovers(identity, *fields) == b"Host: h\r\n" + b"".join(field + b"\r\n" for field in fields[:3])


# Without keys.


def test_empty_keyring_grants_the_local_caller_every_scope() -> None:
    """The gateway then listens on loopback only; X-Gateway-Key is still ours, and everything else goes on."""
    fields = (b"X-Gateway-Key: x", b"Authorization: Bearer " + UPSTREAM, b"x-api-key: y")
    for scope in ("passthrough", "context", "approve", "admin"):
        identity = identify(*fields, ring=KeyRing([]), scope=scope, upstream_has_key=False)
        assert identity.caller == LOCAL and scope in LOCAL.scopes
    assert leftovers(identity, *fields) == b"Host: h\r\n" + b"".join(field + b"\r\n" for field in fields[1:])


# Tokens of the console.


def test_lent_token_is_refused_once_its_key_changes() -> None:
    """In each configuration: without the key, or without the scope, the token opens nothing.

    Nor does it stand for a later key of the same name, or for the key in another tenant.
    """
    lent = LentKeys()
    key = Key(hashlib.sha256(b"k").digest(), Caller("ann", "acme", frozenset(("context",))))
    another = replace(key, digest=hashlib.sha256(b"other").digest())
    elsewhere = replace(key, caller=replace(key.caller, tenant="other"))
    token = lent.get_lent_token(key).encode()
    assert lent.get_lent_token(key).encode() == token != lent.get_lent_token(another).encode() and len(token) > 40
    ring = KeyRing([key], lent=lent)
    assert identify(b"X-Gateway-Key: " + token, ring=ring, scope="context").caller is key.caller
    wider = replace(key, caller=replace(key.caller, scopes=LOCAL.scopes))
    assert identify(b"X-Gateway-Key: " + token, ring=KeyRing([wider], lent=lent), scope="admin").caller is wider.caller
    for other, scope, code in (
        (ring, "approve", "scope_missing"),
        (KeyRing([replace(key, caller=LOCAL)], lent=lent), "context", "invalid_api_key"),
        (KeyRing([another], lent=lent), "context", "invalid_api_key"),
        (KeyRing([elsewhere], lent=lent), "context", "invalid_api_key"),
        (KeyRing([key]), "context", "invalid_api_key"),
        (KeyRing([key], lent=LentKeys()), "context", "invalid_api_key"),
    ):
        with pytest.raises(GatewayError) as caught:
            identify(b"X-Gateway-Key: " + token, ring=other, scope=scope)
        assert caught.value.code == code


def test_lent_token_is_recognised_only_in_the_console_header() -> None:
    """By the header that it uses, and by the token."""
    lent = LentKeys()
    token = lent.get_lent_token(Key(b"", LOCAL)).encode()
    assert lent.has_sent(asking(b"X-Gateway-Key: " + token))
    for fields in ([b"Authorization: Bearer " + token], [b"X-Gateway-Key: " + token[:-1]], []):
        assert not lent.has_sent(asking(*fields))


def test_a_key_is_found_by_its_text_and_its_name() -> None:
    """For a sign-in; a wrong text is refused as in a request."""
    key = Key(hashlib.sha256("k\u00e9y".encode()).digest(), Caller("ann", "acme", frozenset()))
    ring = KeyRing([key])
    assert ring.find_key("k\u00e9y", peer=None) is key
    assert ring.get_keys_by_name("ann") == [key] and ring.get_keys_by_name("eve") == []
    for text in ("", "key", "\ud800"):
        with pytest.raises(GatewayError, match="not valid"):
            ring.find_key(text, peer=None)


# Bounds in time and place.


def key_of(text: bytes, *, name: str = "ann", **bounds: object) -> Key:
    caller = Caller(name, "acme", frozenset(("context", "passthrough")), KeyBounds(**bounds))  # type: ignore[arg-type]
    return Key(hashlib.sha256(text).digest(), caller)


def test_key_is_refused_after_its_expiry() -> None:
    """Not before; the text says when. It is not found by its name any more, either."""
    clock = ManualClock(1000.0)
    ring = KeyRing([key_of(ALICE, expires_s=1060.0)], now_s=clock)
    field = b"X-Gateway-Key: " + ALICE
    clock.advance(59.9)
    assert identify(field, ring=ring).caller.name == "ann" and len(ring.get_keys_by_name("ann")) == 1
    clock.advance(0.1)
    assert refusal(field, ring=ring) == (401, "key_expired")
    with pytest.raises(GatewayError, match="expired at 1970-01-01T00:17:40Z"):
        ring.recognise(asking(field), upstream_has_key=True)
    with pytest.raises(GatewayError, match="expired"):
        ring.find_key(ALICE.decode(), peer=None)
    assert ring.get_keys_by_name("ann") == []


@pytest.mark.parametrize(
    ("peer", "is_open"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.0.0.1", False),
        ("2001:db8::7", True),
        ("2001:db9::7", False),
        ("fe80::1%eth0", True),
        ("", False),
        (None, False),
        ("elsewhere", False),
    ],
)
def test_key_is_refused_outside_its_networks(peer: str | None, is_open: bool) -> None:
    """Also over IPv6 from an address of IPv4; whoever has no address that is known is nowhere."""
    networks = tuple(map(ip_network, ("10.0.0.0/8", "2001:db8::/32", "fe80::/10")))
    ring = KeyRing([key_of(ALICE, networks=networks)])
    head = replace(asking(b"X-Gateway-Key: " + ALICE), peer=peer)
    if is_open:
        assert ring.identify(head, upstream_has_key=True, scope="context").caller.name == "ann"
        return
    for ask in (
        lambda: ring.identify(head, upstream_has_key=True, scope="context"),
        lambda: ring.recognise(head, upstream_has_key=True),
        lambda: ring.find_key(ALICE.decode(), peer=peer),
    ):
        with pytest.raises(GatewayError) as caught:
            ask()
        assert (caught.value.facts.status, caught.value.code) == (403, "network_not_allowed")


def test_lent_token_skips_the_network_check_but_not_expiry() -> None:
    """Its own connection comes from nowhere. The end of the key holds for the token, too."""
    clock, lent = ManualClock(), LentKeys()
    key = key_of(ALICE, networks=(ip_network("10.0.0.0/8"),), expires_s=10.0)
    ring = KeyRing([key], lent=lent, now_s=clock)
    field = b"X-Gateway-Key: " + lent.get_lent_token(key).encode()
    assert identify(field, ring=ring).caller is key.caller
    clock.advance(10.0)
    assert refusal(field, ring=ring) == (401, "key_expired")


# Keys of the store.


def test_stored_keys_are_accepted_beside_configured_keys() -> None:
    """They come and go; without any of either, nobody gets in. Only of those of the store the use is noted."""
    clock, stored = ManualClock(7.0), StoredKeys()
    empty = KeyRing([], stored=stored)
    assert not empty.is_empty and refusal(b"X-Gateway-Key: " + BOB, ring=empty) == (401, "invalid_api_key")
    configured, made = key_of(ALICE), key_of(BOB, name="bob")
    ring = KeyRing([configured], stored=stored, now_s=clock)
    stored.replace([made])
    for text, name in ((ALICE, "ann"), (BOB, "bob")):
        assert identify(b"X-Gateway-Key: " + text, ring=ring).caller.name == name
    assert stored.used_s == {made.digest: 7.0}
    assert not ring.is_watched(configured) and ring.is_watched(made)
    stored.replace([])
    assert refusal(b"X-Gateway-Key: " + BOB, ring=ring) == (401, "invalid_api_key")


def test_stored_keys_are_refused_after_a_worker_stall() -> None:
    """One of them may be revoked meanwhile. Those of the configuration do, and tunnels go on until then."""
    clock = ManualClock()
    stored, made = StoredKeys(clock), key_of(BOB, name="bob")
    stored.replace([made])
    ring = KeyRing([key_of(ALICE)], stored=stored)
    stored.beats.record_beat()
    before = ring.build_state()
    assert identify(b"X-Gateway-Key: " + BOB, ring=ring).caller.name == "bob" and ring.is_key_current(made, HERE)
    clock.advance(STILL_S + 0.1)
    assert ring.build_state() == before and not ring.is_key_current(made, HERE)
    assert refusal(b"X-Gateway-Key: " + BOB, ring=ring) == (503, "overloaded")
    assert identify(b"X-Gateway-Key: " + ALICE, ring=ring).caller.name == "ann"
    stored.beats.read(stored.beats.record_beat())
    assert ring.is_key_current(made, HERE) and identify(b"X-Gateway-Key: " + BOB, ring=ring).caller.name == "bob"


def test_unchanged_stored_key_keeps_its_object() -> None:
    """So that plans made with it go on; a changed one is another, and the state tells of both."""
    stored = StoredKeys()
    first, second = key_of(ALICE), key_of(BOB, name="bob")
    stored.replace([first, second])
    ring = KeyRing([], stored=stored)
    before = ring.build_state()
    stored.replace([key_of(ALICE), key_of(BOB, name="bob")])
    assert ring.build_state() == before and stored.by_digest[first.digest] is first
    stored.replace([key_of(ALICE), key_of(BOB, name="bob", expires_s=1e12)])
    assert ring.build_state() != before and stored.by_digest[first.digest] is first
    assert not ring.is_key_current(second, HERE) and ring.is_key_current(first, HERE)
    assert ring.allows(second, None)  # what it began goes on: it is the same key, and has not ended


def test_ring_state_changes_when_a_key_expires() -> None:
    """Without a change of the keys, and another ring has another one."""
    clock = ManualClock()
    ring = KeyRing([key_of(ALICE, expires_s=5.0), key_of(BOB)], now_s=clock)
    before = ring.build_state()
    clock.advance(4.0)
    assert ring.build_state() == before != KeyRing([]).build_state()
    clock.advance(1.0)
    assert ring.build_state() != before


@pytest.mark.parametrize(
    ("now", "allowed"),
    [
        (key_of(ALICE), True),
        (key_of(ALICE, expires_s=1e12), True),
        (key_of(ALICE, expires_s=1.0), False),
        (key_of(ALICE, networks=(ip_network("10.0.0.0/8"),)), False),
        (key_of(ALICE, name="another"), False),
        (key_of(BOB), False),
        (replace(key_of(ALICE), caller=Caller("ann", "acme", frozenset(("context",)))), False),
    ],
    ids=["same", "ends later", "ended", "elsewhere", "another name", "another text", "fewer scopes"],
)
def test_tunnel_continues_only_while_its_key_allows(now: Key, allowed: bool) -> None:
    """A tunnel."""
    assert KeyRing([now]).allows(key_of(ALICE), "127.0.0.1") is allowed


def test_cached_identity_is_rechecked_when_keys_change() -> None:
    """An identity holds for equal heads as long as no key was made, changed or revoked, or has ended."""
    clock, stored = ManualClock(), StoredKeys()
    ring = KeyRing([key_of(ALICE, expires_s=5.0)], stored=stored, now_s=clock)
    head = asking(b"X-Gateway-Key: " + BOB, b"X-Note: " + ALICE)

    def consumed() -> frozenset[bytes]:
        ring.recognise(head, upstream_has_key=True)
        return ring.identify(head, upstream_has_key=True, scope="context").consumed

    stored.replace([made := key_of(BOB, name="bob")])
    for _ in range(2):
        assert consumed() == {b"x-gateway-key", b"x-note"} and stored.used_s.pop(made.digest) == clock()
    stored.replace([])
    for ask in (consumed, lambda: ring.recognise(head, upstream_has_key=True)):
        with pytest.raises(GatewayError, match="not valid"):
            ask()
    stored.replace([made])
    assert consumed() == {b"x-gateway-key", b"x-note"}
    assert (
        RING.identify(head, upstream_has_key=True, scope="context").caller is CALLERS[BOB]
    )  # another ring looks itself


def test_cached_identity_is_rechecked_for_another_address() -> None:
    """A key that is bound to networks, or ends, is asked for each request, whatever was found out before."""
    clock = ManualClock()
    ring = KeyRing([key_of(ALICE, networks=(ip_network("10.0.0.0/8"),), expires_s=5.0)], now_s=clock)
    head = replace(asking(b"X-Gateway-Key: " + ALICE), peer="10.0.0.1")
    elsewhere = replace(head, peer="11.0.0.1")
    elsewhere.derived = head.derived
    ring.recognise(head, upstream_has_key=True)
    assert ring.identify(head, upstream_has_key=True, scope="context").caller.name == "ann"
    for ask in (
        lambda: ring.recognise(elsewhere, upstream_has_key=True),
        lambda: ring.identify(elsewhere, upstream_has_key=True, scope="context"),
    ):
        with pytest.raises(GatewayError, match="may not be used from"):
            ask()
    clock.advance(5.0)
    with pytest.raises(GatewayError, match="expired"):
        ring.identify(head, upstream_has_key=True, scope="context")


def test_deciders_are_unique_active_names_of_one_tenant() -> None:
    """Of one tenant, once each, without those that have ended."""
    deciding = frozenset(("approve",))
    facts = (("a", "acme", None), ("a", "acme", None), ("b", "acme", 1.0), ("c", "other", None))
    keys = [
        Key(bytes((number,)) * 32, Caller(name, tenant, deciding, KeyBounds(expires_s=expires_s)))
        for number, (name, tenant, expires_s) in enumerate(facts)
    ]
    assert KeyRing([*keys, key_of(ALICE)]).list_deciders("acme") == ["a"]


def test_a_local_socket_has_no_address() -> None:
    assert (
        get_peer_address(HERE) == "127.0.0.1" and get_peer_address(From("")) == "" and get_peer_address(Local()) is None
    )


class Local:
    """The transport of a connection over a local socket."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return "" if name == "peername" else default
