"""The pages of keys, asked over HTTP: who may make which, and what becomes of them."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from gateways import key, until_read

from gateway.contracts.storage.store import StoreError
from tests.auth.keyring import EVERYTHING, ROOT, START_S, keyring


async def test_a_key_is_made_used_and_revoked() -> None:
    """Its text is told once; from the answer on it opens, and from the next one on it does not."""
    async with keyring() as ring:
        made = await ring.made("ci", metadata={"team": "core"})
        text = made.pop("key")
        assert text.startswith("sk-") and made["hint"] == f"sk-...{text[-4:]}"
        facts = {name: made[name] for name in ("name", "tenant", "scopes", "state", "origin", "created_by", "metadata")}
        assert facts == {
            "name": "ci",
            "tenant": "acme",
            "scopes": ["passthrough", "context"],
            "state": "valid",
            "origin": "store",
            "created_by": "root",
            "metadata": {"team": "core"},
        }
        path = f"/context/keys/{made['id']}"
        assert await ring.ask("GET", path) == (200, made)
        assert await ring.opens(text) == 200
        assert await ring.ask("DELETE", path) == (204, {})
        assert await ring.opens(text) == 401
        shown = (await ring.ask("GET", path))[1]
        assert (shown["state"], shown["revoked_by"], shown["revoked_at"]) == ("revoked", "root", START_S)
        assert await ring.refused("DELETE", path) == (409, "key_ended", None)
        assert await ring.audited() == [("key_created", "ci", "root", "rest"), ("key_revoked", "ci", "root", "rest")]
        assert text not in ring.gateway.get_log()


async def test_key_change_succeeds_when_reloading_the_keys_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on disk by then: an error would say that nothing has changed."""

    async def fails() -> int:
        raise StoreError("the disk is gone")

    async with keyring() as ring:
        with monkeypatch.context() as broken:
            broken.setattr(ring.gateway.gateway._shared.store, "count_key_changes", fails)
            made = await ring.made("ci")
            path = f"/context/keys/{made['id']}"
            status, rotated = await ring.ask("POST", f"{path}/rotate", {"grace": "1h"})
            assert status == 201
            assert await ring.ask("DELETE", path) == (204, {})
            assert (await ring.ask("GET", path))[1]["state"] == "revoked"
        await until_read(lambda: ring.opens(rotated["key"]), lambda status: status == 200)
        assert await ring.opens(made["key"]) == 401


async def test_key_list_returns_all_keys_of_the_tenant_without_secrets() -> None:
    """The newest first, page by page; those of the configuration come last, and have no hash."""
    async with keyring() as ring:
        texts = [(await ring.made(f"k{number}"))["key"] for number in range(5)]
        status, first = await ring.ask("GET", "/context/keys?limit=3")
        assert status == 200 and [one["name"] for one in first["data"]] == ["k4", "k3", "k2"]
        _, rest = await ring.ask("GET", f"/context/keys?limit=3&after={first['next']}")
        assert [(one["name"], one["origin"]) for one in rest["data"]] == [
            ("k1", "store"),
            ("k0", "store"),
            ("root", "configuration"),
        ]
        assert rest["next"] is None and not any(text in f"{first}{rest}" for text in (*texts, ROOT))
        assert "sha256" not in f"{first}{rest}"
        assert await ring.refused("GET", "/context/keys?after=key_x") == (400, "invalid_field", "after")
        assert await ring.refused("GET", "/context/keys/key_x") == (404, "key_not_found", None)


async def test_operator_cannot_read_or_change_keys_of_another_tenant() -> None:
    """Its operator has the scope, in its own tenant."""
    eve = {**key("gw-eve", *EVERYTHING), "name": "eve", "tenant": "other"}
    root = {**key(ROOT, *EVERYTHING), "name": "root", "tenant": "acme"}
    async with keyring(keys=[root, eve]) as ring:
        made = await ring.made()
        listed = (await ring.ask("GET", "/context/keys", by="gw-eve"))[1]["data"]
        assert [one["name"] for one in listed] == ["eve"]
        path = f"/context/keys/{made['id']}"
        for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
            assert await ring.refused(method, target, by="gw-eve") == (404, "key_not_found", None)
        body = {"name": "x", "scopes": ["context"], "tenant": "acme"}
        assert await ring.refused("POST", "/context/keys", body, by="gw-eve") == (403, "key_too_wide", "tenant")
        assert await ring.opens(made["key"]) == 200


@pytest.mark.parametrize("scopes", [("context",), ("approve", "tools", "metrics", "passthrough")])
async def test_key_pages_require_admin_scope(scopes: tuple[str, ...]) -> None:
    """With the scope `admin`."""
    async with keyring() as ring:
        made = await ring.made("another", *scopes)
        path = f"/context/keys/{made['id']}"
        for method, target in (
            *(("GET", "/context/keys"), ("POST", "/context/keys"), ("GET", path), ("DELETE", path)),
            ("POST", f"{path}/rotate"),
        ):
            assert await ring.refused(method, target, by=made["key"]) == (403, "scope_missing", None)


BOUND = {
    "models": ["gpt-4*", "llama3"],
    "tools": ["web.*"],
    "upstreams": ["up"],
    "networks": ["127.0.0.0/8", "10.0.0.0/8"],
    "expires": "2100-01-01T00:00:00Z",
}
WITHIN = {
    "models": ["gpt-4.1", "gpt-4*"],
    "tools": ["web.*"],
    "upstreams": ["up"],
    "networks": ["10.1.0.0/16"],
    "expires": "2099-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scopes", ["context", "metrics"]),
        ("models", []),
        ("models", ["gpt-4.1", "claude"]),
        ("models", ["gpt-*"]),
        ("tools", []),
        ("tools", ["*"]),
        ("upstreams", []),
        ("networks", []),
        ("networks", ["10.0.0.0/7"]),
        ("networks", ["::1"]),
        ("expires", None),
        ("expires", "2100-01-01T00:00:01Z"),
        ("tenant", "other"),
    ],
)
async def test_key_creation_refuses_wider_rights_than_the_creator(field: str, value: object) -> None:
    """In any of its bounds: 403 that names the field; within all of them it may."""
    root = {"scopes": ["admin", "context"], **BOUND}
    async with keyring(root=root) as ring:
        fine = {"name": "fine", "scopes": ["context"], **WITHIN}
        assert (await ring.ask("POST", "/context/keys", fine))[0] == 201
        wide = {**fine, "name": "wide", field: value}
        assert await ring.refused("POST", "/context/keys", wide) == (403, "key_too_wide", field)


async def test_key_rotation_refuses_keys_with_wider_rights() -> None:
    """It would get the text of a key with more scopes. Revoking takes away only."""
    async with keyring() as ring:
        wide, small = await ring.made("wide", "admin", "metrics"), await ring.made("small", "admin")
        path = f"/context/keys/{wide['id']}"
        assert await ring.refused("POST", f"{path}/rotate", by=small["key"]) == (403, "key_too_wide", "scopes")
        assert await ring.opens(wide["key"], "/metrics") != 401
        assert (await ring.ask("DELETE", path, by=small["key"]))[0] == 204


async def test_key_with_approvals_reject_creates_only_reject_keys() -> None:
    async with keyring(root={"approvals": "reject"}) as ring:
        body = {"name": "x", "scopes": ["context"], "approvals": "hold"}
        assert await ring.refused("POST", "/context/keys", body) == (403, "key_too_wide", "approvals")
        assert (await ring.ask("POST", "/context/keys", {**body, "approvals": "reject"}))[0] == 201


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "missing_field", "name")),
        ({"name": "x"}, (400, "missing_field", "scopes")),
        ({"name": "x", "scopes": []}, (400, "invalid_field", "scopes")),
        ({"name": "x", "scopes": ["root"]}, (400, "invalid_field", "scopes.0")),
        ({"name": "a\nb", "scopes": ["context"]}, (400, "invalid_field", "name")),
        ({"name": "x", "scopes": ["context"], "sha256": "0" * 64}, (400, "unknown_field", "sha256")),
        ({"name": "x", "scopes": ["context"], "expires": "2001-01-01T00:00:00Z"}, (400, "invalid_field", "expires")),
        ({"name": "x", "scopes": ["context"], "expires": "tomorrow"}, (400, "invalid_field", "expires")),
        ({"name": "x", "scopes": ["context"], "networks": ["10.0.0.1/8"]}, (400, "invalid_field", "networks.0")),
        ({"name": "x", "scopes": ["context"], "upstreams": ["gone"]}, (400, "invalid_field", "upstreams")),
        ({"name": "root", "scopes": ["context"]}, (409, "key_exists", "name")),
        ({"name": "taken", "scopes": ["context"]}, (409, "key_exists", "name")),
        ([], (400, "invalid_json", None)),
    ],
)
async def test_invalid_key_creation_reports_the_field_and_stores_nothing(
    body: object, expected: tuple[int, str, str | None]
) -> None:
    """The field is named; nothing is stored and nothing is written into the audit log."""
    async with keyring() as ring:
        await ring.made("taken")
        assert await ring.refused("POST", "/context/keys", body) == expected
        assert len(await ring.audited()) == 1


async def test_rotated_key_stays_valid_for_its_grace_period() -> None:
    """As long as the request says, else as configured. Both are of one name; only the newest is rotated again."""
    async with keyring(runtime_keys={"enabled": True, "grace": "2h"}) as ring:
        old = await ring.made("ci", metadata={"team": "core"})
        path = f"/context/keys/{old['id']}/rotate"
        status, new = await ring.ask("POST", path, {"grace": "1h"})
        assert (status, new["name"], new["rotated_from"], new["metadata"]) == (201, "ci", old["id"], {"team": "core"})
        assert [await ring.opens(one["key"]) for one in (old, new)] == [200, 200]
        assert await ring.refused("POST", path) == (409, "key_ended", None)
        status, newest = await ring.ask("POST", f"/context/keys/{new['id']}/rotate")
        ring.clock.now_s += 3600.0
        assert [await ring.opens(one["key"]) for one in (old, new, newest)] == [401, 200, 200]
        ring.clock.now_s += 3600.0
        assert [await ring.opens(one["key"]) for one in (new, newest)] == [401, 200]
        for body, param in (({"grace": "soon"}, "grace"), ({"x": 1}, "x")):
            assert (await ring.refused("POST", f"/context/keys/{newest['id']}/rotate", body))[2] == param
        status, last = await ring.ask("POST", f"/context/keys/{newest['id']}/rotate", {"grace": 0})
        assert [await ring.opens(one["key"]) for one in (newest, last)] == [401, 200]


async def test_configured_key_cannot_be_revoked_or_rotated_over_http() -> None:
    async with keyring() as ring:
        for method, target in (("DELETE", "/context/keys/root"), ("POST", "/context/keys/root/rotate")):
            assert await ring.refused(method, target) == (409, "key_is_configured", None)


async def test_disabled_runtime_keys_are_refused_and_not_created() -> None:
    """The list has the configured keys; what was made before opens nothing."""
    async with keyring() as ring:
        made = await ring.made()
        await ring.gateway.reload({**ring.config, "runtime_keys": {}})
        body = {"name": "x", "scopes": ["context"]}
        assert await ring.refused("POST", "/context/keys", body) == (409, "runtime_keys_off", None)
        assert await ring.opens(made["key"]) == 401
        await ring.gateway.reload(ring.config)
        assert await ring.opens(made["key"]) == 200


async def test_key_last_use_time_is_reported_and_survives_restart(tmp_path: Path) -> None:
    """In either lane; some time after, and also over a restart."""
    store = tmp_path / "gateway.db"
    async with keyring(store) as ring:
        made, idle = await ring.made("used"), await ring.made("idle")
        ring.clock.now_s += 5.0
        assert await ring.opens(made["key"]) == 200
        ring.clock.now_s += 5.0
        assert await ring.opens(made["key"]) == 200
    async with keyring(store) as ring:
        shown = [(await ring.ask("GET", f"/context/keys/{one['id']}"))[1]["used_at"] for one in (made, idle)]
        assert shown == [START_S + 10.0, None]


async def test_key_changes_reach_other_gateways_on_the_store(tmp_path: Path) -> None:
    """A key made at one opens the other, and one revoked at one closes it; nobody reloads."""
    store = tmp_path / "gateway.db"
    async with keyring(store) as one, keyring(store) as other:
        made = await one.made()
        await until_read(lambda: other.opens(made["key"]), lambda status: status == 200)
        await one.ask("DELETE", f"/context/keys/{made['id']}")
        assert await one.opens(made["key"]) == 401
        await until_read(lambda: other.opens(made["key"]), lambda status: status == 401)


async def test_concurrent_creation_of_one_key_name_creates_one_key() -> None:
    async with keyring() as ring:
        body = {"name": "x", "scopes": ["context"]}
        answers = await asyncio.gather(*(ring.ask("POST", "/context/keys", body) for _ in range(5)))
        assert sorted(status for status, _ in answers) == [201, 409, 409, 409, 409]


async def test_key_text_is_never_stored_logged_or_shown_again(tmp_path: Path) -> None:
    """K13, K16: not in the store, the log, the metrics or any page for operators; its hash is on no page."""
    store = tmp_path / "gateway.db"
    async with keyring(store, logging={"level": "debug", "access": True}) as ring:
        made = await ring.made("canary")
        text, sha256 = made["key"], hashlib.sha256(made["key"].encode()).hexdigest()
        assert await ring.opens(text) == 200 and await ring.opens(text[:-1]) == 401
        pages = []
        for path in (
            "/context/status",
            "/context/keys",
            "/context/audit",
            "/metrics",
            "/health/ready",
            "/openapi.json",
        ):
            async with ring.session.get(path, headers={"X-Gateway-Key": ROOT}) as response:
                assert response.status == 200
                pages.append(await response.text())
        told = ring.gateway.get_log() + "".join(pages)
        assert text not in told and text[:-4] not in told and sha256 not in told
        stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert sha256.encode() in stored and text.encode() not in stored
