"""Links that decide: what they hold, and what opens none of them."""

from collections.abc import AsyncIterator

import pytest

from gateway.approvals.links import LONGEST, LinkPayload, Links
from gateway.approvals.view import build_approval_view
from gateway.config.schema.approvals import Notify
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import approval

URL = "https://gw.example/console"


def entry(name: str | None = "oncall", secret: str | None = "s3cret") -> Notify:
    links = None if name is None else {"as": name}
    return Notify.model_validate({"webhook": "https://hooks.example/x", "secret": secret, "links": links})


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = SqliteStore(":memory:")
    await store.open()
    yield store
    await store.close()


async def links(store: SqliteStore, *notify: Notify) -> Links:
    made = Links(store, lambda: notify)
    await made.prepare()
    return made


def token(made: Links, notify: Notify) -> str:
    address = made.build_address(URL, notify, build_approval_view(approval()), tenant="acme")
    assert address is not None and address.startswith(f"{URL}/link?token=")
    return address.partition("=")[2]


async def test_link_is_deterministic_and_valid_on_every_worker(store: SqliteStore) -> None:
    """Also a worker that starts later: the secret is the store's."""
    one, other = await links(store, entry()), await links(store, entry("sre"), entry())
    text = token(one, entry())
    assert text == token(one, entry()) == token(other, entry())
    assert other.verify_link(text) == LinkPayload("ap_1", "acme", "a" * 64, "oncall", 1000.0)
    assert one.build_address(URL, entry(None), build_approval_view(approval()), tenant="acme") is None


async def test_forged_or_foreign_links_do_not_verify(store: SqliteStore) -> None:
    """Of another store, webhook, secret or name; cut, changed, too long."""
    made = await links(store, entry())
    text = token(made, entry())
    elsewhere = SqliteStore(":memory:")
    await elsewhere.open()
    assert (await links(elsewhere, entry())).verify_link(text) is None
    await elsewhere.close()
    for notify in (entry("sre"), entry(secret="other"), entry(secret=None), entry(None)):
        assert (await links(store, notify)).verify_link(text) is None
    for wrong in ("", text[:-1], text + "=", text.upper(), "A" * (LONGEST + 1), "\udcff.\udcff", "."):
        assert made.verify_link(wrong) is None


async def test_form_token_is_bound_to_link_and_time(store: SqliteStore) -> None:
    made = await links(store, entry())
    tokens = {made.build_form_token(text, shown_s=shown_s) for text in ("a", "b") for shown_s in (1, 2)}
    assert len(tokens) == 4 and made.build_form_token("a", shown_s=1) in tokens
