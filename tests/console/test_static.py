"""The files of the console: what is served, for how long, and nothing else of the folder."""

from pathlib import Path

import pytest

from gateway.console.static import FOLDER, TYPES, answer_static_file, build_static_url
from tests.console.browsing import key, served


async def test_static_files_are_served_without_a_session_as_immutable(tmp_path: Path) -> None:
    """Their address has the content in it: a changed file has another one."""
    async with served(tmp_path, key("ann")) as browser:
        for name, kind in TYPES.items():
            found = await browser.get(build_static_url(name))
            assert found.status == 200 and found.body == (FOLDER / name).read_bytes()
            assert found.headers["Content-Type"].startswith(kind) and "immutable" in found.headers["Cache-Control"]
            assert found.headers["X-Content-Type-Options"] == "nosniff"
            assert found.headers["Content-Security-Policy"] == "default-src 'none'"
            head = await browser.get(build_static_url(name), method="HEAD")
            assert (head.status, head.body) == (200, b"")
            assert (await browser.post(build_static_url(name))).status == 404


@pytest.mark.parametrize(
    "name",
    [
        "",
        "missing.js",
        "THIRD_PARTY.md",
        "../site.py",
        "..%2Fsite.py",
        "%2e%2e/site.py",
        "./console.css",
        "/etc/passwd",
    ],
)
async def test_unlisted_or_traversing_static_path_is_not_served(tmp_path: Path, name: str) -> None:
    assert answer_static_file(name) is None
    async with served(tmp_path, key("ann")) as browser:
        found = await browser.get(f"/console/static/{name}", follow=False)
        assert found.status in (303, 400, 404) and b"import" not in found.body


def test_static_url_raises_for_an_unserved_file() -> None:
    with pytest.raises(KeyError):
        build_static_url("THIRD_PARTY.md")
