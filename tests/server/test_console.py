"""The console's place in a worker: built for the first request, sockets that nobody else may open, and its end."""

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.console.browsing import Browser, key, served


def sockets() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob("gateway-console-*/*.sock"))


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A socket's path has at most 107 characters. pytest's own folders are made before."""
    with tempfile.TemporaryDirectory(prefix="con-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


async def test_console_is_built_on_its_first_request(tmp_path: Path) -> None:
    """Its sockets are for the gateway's own user, and go with it."""
    async with served(tmp_path, key("ann")) as browser:
        await browser.get("/health/live")
        assert sockets() == []
        ann = await browser.signed_in("ann")
        (socket,) = sockets()
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert (await ann.get("/console")).heading == "Inbox"
    assert sockets() == []


async def test_disabled_console_has_no_pages(tmp_path: Path) -> None:
    """Its addresses are those of passthrough, as any other."""
    async with served(tmp_path, key("ann"), console={"enabled": False}, passthrough={"paths": ["/v1/"]}) as browser:
        seen = await browser.get("/console", follow=False)
        assert seen.status in (401, 404) and b"Twolane console" not in seen.body
        assert sockets() == []


async def test_disabling_the_console_closes_its_open_pages(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        async with ann.listening() as news:
            await news.next("count")
            await browser.reload(console={"enabled": False})
            await ann.asks()
            assert await news.any() is None


async def test_console_without_a_socket_folder_reports_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And is built once there is one."""
    async with served(tmp_path, key("ann")) as browser:
        (long := tmp_path / ("x" * 100)).mkdir()
        for folder in (long, tmp_path / "missing"):
            with monkeypatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(folder))
                seen = await browser.get("/console")
                assert seen.status == 500 and b"set TMPDIR" in seen.body
                assert "no sockets in the folder" in caplog.text and not list(long.iterdir())
        assert (await browser.signed_in("ann")).key


async def test_console_connections_do_not_count_towards_the_limit(tmp_path: Path) -> None:
    """Its connections to its own gateway are not among those that `limits.connections` counts."""
    async with served(tmp_path, key("ann"), limits={"connections": 1}) as browser:
        ann = await browser.signed_in("ann")
        for page in ("/console", "/console/runs", "/console/tools"):
            assert (await ann.get(page)).status == 200
        assert "gateway_client_connections 1.0" in (await ann.api().get("/metrics")).html.splitlines()


async def test_console_socket_requires_a_valid_token(tmp_path: Path) -> None:
    """A program that reached the socket would still need a key."""
    async with served(tmp_path, key("ann")) as browser:
        await browser.signed_in("ann")
        (socket,) = sockets()
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
            for headers in ({}, {"X-Gateway-Key": "lent-guess"}):
                async with session.get("http://localhost/context/summary", headers=headers) as response:
                    assert response.status == 401


async def test_console_session_is_shared_by_workers_of_one_store(tmp_path: Path) -> None:
    """And the sign-out: both stand in the store, where no id of a session can be read."""
    keys = (key("ann"),)
    async with served(tmp_path, *keys) as browser, served(tmp_path, *keys) as second:
        ann = await browser.signed_in("ann")
        there = Browser(second.gateway, tmp_path, second.config, second.session, cookies=dict(ann.cookies))
        page = await there.get("/console/runs", follow=False)
        assert page.status == 200
        await there.submit(page, "Sign out", follow=False)
        assert (await ann.get("/console/runs", follow=False)).status == 303
    (cookie,) = ann.cookies.values()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("gateway.db*"))
    assert cookie.encode() not in stored and cookie.strip(".").split(".")[0].encode() not in stored


async def test_sessions_survive_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
    async with served(tmp_path, key("ann")) as again:
        there = Browser(again.gateway, tmp_path, again.config, again.session, cookies=dict(ann.cookies))
        assert (await there.get("/console/runs", follow=False)).status == 200


async def test_failed_console_is_rebuilt_by_a_later_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full folder of temporary files must not take the console until the next restart."""
    folder = tempfile.gettempdir()
    async with served(tmp_path, key("ann")) as browser:
        monkeypatch.setattr(tempfile, "tempdir", f"{folder}/missing")
        assert (await browser.get("/console/sign-in")).status == 500
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert (await browser.get("/console/sign-in")).status == 200
