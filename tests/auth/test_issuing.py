"""Keys that are made: what is stored of them, and what is told."""

import hashlib
import logging
from pathlib import Path

import pytest

from gateway.auth import issuing
from gateway.auth.issuing import ON_THE_STORE, KeyIssuer
from gateway.config import Settings
from gateway.config.schema.keys import KeyTerms
from gateway.contracts.errors import GatewayError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.clock import ManualClock


def terms(name: str = "ci", **more: object) -> KeyTerms:
    return KeyTerms.model_validate({"name": name, "scopes": ["context"], **more})


@pytest.fixture
async def store() -> SqliteStore:
    made = SqliteStore(":memory:")
    await made.open()
    return made


def issuer(store: SqliteStore, **sections: object) -> KeyIssuer:
    settings = Settings.model_validate({"runtime_keys": {"enabled": True}, **sections})
    return KeyIssuer(store, settings=lambda: settings, clock=ManualClock(100.0))


async def test_the_text_of_a_key_is_stored_nowhere(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    """Only its SHA-256 and its last characters are; the log tells who made it."""
    caplog.set_level(logging.INFO, "gateway")
    issued = await issuer(store).create(terms(), by=None, via="cli")
    assert len(issued.text) > 40 and issued.key.sha256 == hashlib.sha256(issued.text.encode()).hexdigest()
    assert issued.key.hint == issued.text[-4:] and issued.text not in repr(issued.key)
    assert list(await store.list_keys_in_use()) == [issued.key]
    assert issued.text not in caplog.text and f"was created by {ON_THE_STORE!r}" in caplog.text
    (row,) = await store.audit(after=0, limit=9)
    assert (row.line.event, row.line.caller, row.line.rule, row.line.by) == (
        "key_created",
        "ci",
        issued.key.id,
        ON_THE_STORE,
    )
    await store.close()


async def test_each_created_key_has_a_unique_text_and_id(store: SqliteStore) -> None:
    made = [await issuer(store).create(terms(f"k{number}"), by=None, via="cli") for number in range(20)]
    assert len({one.text for one in made}) == len({one.key.id for one in made}) == 20
    await store.close()


async def test_created_key_uses_the_given_tenant_or_its_own_name(store: SqliteStore) -> None:
    """Without one, it is the name of the key."""
    made = issuer(store)
    assert (await made.create(terms("a", tenant="other"), by=None, via="cli")).key.tenant == "other"
    assert (await made.create(terms("b"), by=None, via="cli")).key.tenant == "b"
    await store.close()


async def test_key_creation_beyond_the_maximum_is_refused(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuing, "MOST", 2)
    made = issuer(store)
    for name in ("a", "b"):
        await made.create(terms(name), by=None, via="cli")
    with pytest.raises(GatewayError) as caught:
        await made.create(terms("c"), by=None, via="cli")
    assert caught.value.code == "too_many_keys"
    await store.close()


async def test_key_with_the_name_of_an_oauth_caller_is_refused(store: SqliteStore) -> None:
    """Where tokens are accepted."""
    oauth = {"issuer": "https://id.example", "audience": "x", "tenant": "acme", "scopes": {"tools": ["tools"]}}
    sections = {"mcp": {"serve": {"oauth": oauth}}, "public_url": "https://gw.example"}
    with pytest.raises(GatewayError) as caught:
        await issuer(store, **sections).create(terms("oauth:ann"), by=None, via="cli")
    assert (caught.value.code, caught.value.param) == ("invalid_field", "name")
    await store.close()


USAGE = {"enabled": True}
PRICED = {**USAGE, "prices": "prices.yaml"}


@pytest.mark.parametrize(
    ("figure", "usage", "missing"),
    [
        ("tokens_per_day", {}, "usage.enabled"),
        ("cost_per_month", {}, "usage.enabled"),
        ("cost_per_day", USAGE, "usage.prices"),
        ("cost_per_month", USAGE, "usage.prices"),
        ("cost_per_month", {**PRICED, "enabled": False}, "usage.enabled"),
        ("tokens_per_month", USAGE, None),
        ("cost_per_day", PRICED, None),
    ],
)
async def test_key_with_uncountable_budget_is_refused(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: str, usage: object, missing: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prices.yaml").write_text("currency: USD\nprices: [{model: '*', input: 1}]")
    made, wanted = issuer(store, usage=usage), terms(limits={"concurrent": 5, figure: 5})
    if missing is None:
        await made.create(wanted, by=None, via="cli")
    else:
        with pytest.raises(GatewayError, match=f"cannot count it without '{missing}'") as caught:
            await made.create(wanted, by=None, via="cli")
        assert (caught.value.code, caught.value.param) == ("invalid_field", f"limits.{figure}")
    await store.close()
