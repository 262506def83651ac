"""The page at `/`: for browsers, and for nobody else."""

import re

import pytest
from functional.through import ask, get, through
from gateways import key

from gateway.api.front_page import FRONT_PAGE, wants_html

BROWSER = b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (BROWSER.decode().removeprefix("Accept: "), True),
        ("text/html", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("text/html;q=0.5, */*", True),
        ("application/json;q=0.5, text/html", True),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json, text/plain, */*", False),
        ("application/json, text/html", False),
        ("text/html;q=0", False),
        ("text/html;q=0.000", False),
        ("text/html;q=nan", False),
        ("text/html;q=-1", False),
        ("text/htmlx", False),
    ],
)
def test_wants_html_requires_html_preferred_over_json(accept: str, *, expected: bool) -> None:
    """A client that names HTML, and prefers it to JSON."""
    assert wants_html(accept) is expected


@pytest.mark.parametrize("keys", [[], [key("k")]])
async def test_front_page_is_served_to_browsers_and_json_to_others(keys: list[object]) -> None:
    """HEAD gets its head. No key is asked for, and nothing goes upstream."""
    async with through(keys=keys) as (gateway, upstream):
        page = await ask(gateway, get(b"/", BROWSER))
        assert (page.status, page.payload) == (200, FRONT_PAGE)
        assert page.list_values(b"content-type") == [b"text/html; charset=utf-8"]
        head = await ask(gateway, get(b"/", BROWSER, method=b"HEAD"))
        assert (head.status, head.payload) == (200, b"")
        assert head.list_values(b"content-length") == [b"%d" % len(FRONT_PAGE)]
        for lines in ((), (b"Accept: */*",), (b"Accept: application/json",)):
            answer = await ask(gateway, get(b"/", *lines))
            assert (answer.status, answer.payload) == (200, b'{"status": "ok"}')
        assert not upstream.requests


async def test_front_page_has_no_scripts_or_external_references() -> None:
    """No script, no foreign address; the policy allows its style and nothing else."""
    async with through() as (gateway, _):
        page = await ask(gateway, get(b"/", BROWSER))
    (policy,) = page.list_values(b"content-security-policy")
    assert b"default-src 'none'" in policy and b"unsafe" not in policy
    text = page.payload.decode()
    assert "<script" not in text and not re.search(r"(?:src|href)=\"(?!/|data:)", text)


async def test_front_page_links_return_200() -> None:
    """On the gateway itself."""
    async with through() as (gateway, _):
        for target in re.findall(r'href="(/[^"]*)"', FRONT_PAGE.decode()):
            assert (await ask(gateway, get(target.encode()))).status == 200, target


async def test_root_passthrough_prefix_replaces_the_front_page() -> None:
    """Then `/` is the upstream's, for browsers too."""
    async with through(passthrough={"paths": ["/"]}) as (gateway, upstream):
        await ask(gateway, get(b"/", BROWSER))
        assert [request.target for request in upstream.requests] == [b"/"]
