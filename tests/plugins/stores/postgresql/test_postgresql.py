"""The settings of the PostgreSQL store."""

import importlib.util

import pytest
from pydantic import ValidationError

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql import PLUGIN, Config
from tests.plugins.stores.records import new


def test_store_url_must_name_a_database() -> None:
    """An error repeats nothing of the URL."""
    with pytest.raises(ValidationError, match="postgresql://USER@HOST/DATABASE") as caught:
        Config(url="postgresql://me:CANARY@db")
    assert "CANARY" not in str(caught.value)
    assert PLUGIN.config is Config


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    with pytest.raises(ValidationError, match=r"pip install 'twolane\[postgres\]'"):
        Config(url="postgresql://db/x")


async def test_unopened_store_refuses_operations() -> None:
    """Its name shows no password; it can be closed."""
    store = PLUGIN.build(Config(url="postgresql://me:CANARY@db/x?pool=2"), None)  # type: ignore[arg-type]
    assert repr(store) == "PostgresqlStore('postgresql://me@db/x')"
    with pytest.raises(StoreError, match="not open"):
        await store.run("run_1", tenant="acme")
    with pytest.raises(StoreError, match="not open"):
        await store.write(new())
    await store.close()
