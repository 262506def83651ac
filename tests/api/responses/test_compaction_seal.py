"""The seal of compaction items: made and opened by one tenant of one store."""

from pathlib import Path

import pytest

from gateway.api.responses.compaction_seal import SealFactory
from gateway.plugins.stores.sqlite import SqliteStore


async def test_seal_round_trips_any_text_in_url_safe_form() -> None:
    """Any text; the seal shows nothing that does not fit into a URL."""
    store = SqliteStore(":memory:")
    await store.open()
    try:
        seal = await SealFactory(store).get_seal("acme")
        for text in ("", "The safe is behind the mirror.", "é\n\0" * 1000, "x" * 1_000_000):
            sealed = seal.seal_summary(text)
            assert seal.unseal_summary(sealed) == text
            assert sealed.isascii() and not set(sealed) & set(' "\n\\')
    finally:
        await store.close()


async def test_seal_is_valid_for_processes_of_the_same_store_only(tmp_path: Path) -> None:
    """Another process of the same store opens it; another store does not."""
    sealed: list[str] = []
    for _ in range(2):
        store = SqliteStore(str(tmp_path / "gateway.db"))
        await store.open()
        try:
            seal = await SealFactory(store).get_seal("acme")
            sealed.append(seal.seal_summary("x"))
            assert all(seal.unseal_summary(one) == "x" for one in sealed)
        finally:
            await store.close()
    other = SqliteStore(":memory:")
    await other.open()
    try:
        with pytest.raises(ValueError, match="Signature"):
            (await SealFactory(other).get_seal("acme")).unseal_summary(sealed[0])
    finally:
        await other.close()


async def test_seal_refuses_foreign_or_changed_text() -> None:
    """Another tenant's, a changed one, half of one, and no seal at all."""
    store = SqliteStore(":memory:")
    await store.open()
    try:
        sealing = SealFactory(store)
        seal, rival = await sealing.get_seal("acme"), await sealing.get_seal("other")
        sealed = seal.seal_summary("The safe is behind the mirror.")
        forged = "A" + sealed[1:] if sealed[0] != "A" else "B" + sealed[1:]
        for text in (forged, sealed[:-1], sealed[: len(sealed) // 2], sealed + "A", "", "x", ".", "é", "x.y", "\0"):
            with pytest.raises(ValueError):  # noqa: PT011  # the words are of the library
                seal.unseal_summary(text)
        with pytest.raises(ValueError):  # noqa: PT011
            rival.unseal_summary(sealed)
        with pytest.raises(ValueError, match="no summary"):
            seal.unseal_summary(seal._build_serializer().dumps({"a": 1}))
    finally:
        await store.close()
