"""Each page of the console, with each way in which a request may not be what it seems.

The pages are those of the console itself, so that a new one cannot be forgotten: it needs a value in `World.values` for
the variable parts of its path.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from functional.through import FINE

from gateway.aio.clock import SystemClock
from gateway.console.request import Page
from gateway.testing.upstream import FakeUpstream
from tests.console.browsing import CHAT, EVERY_SCOPE, Browser, key, served

#: Rooms of objects that belong to a tenant; the others are the same for all.
OF_TENANTS = ("approvals", "runs", "prompts", "memories", "remembered")
WORKFLOW = {"name": "say", "category": "c", "description": "d", "steps": [{"name": "said", "prompt": "hi"}]}
WRITE = 'tool file_operations {"operation": "write", "path": "a.txt", "content": "x", "risk_level": "high"}'
#: Pages that write until the browser leaves.
NEWS = "/live"


class LaterClock(SystemClock):
    """The system's clock, `ahead_s` later."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@dataclass(frozen=True)
class Answer:
    """Status and code of an answer; `text` is the whole of it, with its head."""

    status: int
    code: str
    text: str
    location: str
    allowed: str


@dataclass
class World:
    """A gateway in which one object of each kind belongs to the tenant of ann, and all pages of its console."""

    browser: Browser
    ann: Browser
    pages: list[Page]
    values: Mapping[str, str]
    clock: LaterClock

    def path(self, page: Page) -> str:
        """The address of a page, of objects that exist."""
        place = page.path
        for prefix, value in self.values.items():
            if place.startswith(prefix):
                place = re.sub(r"\{[a-z_]+\}", value, place, count=1)
        assert "{" not in place, f"World.values has no value for {page.path}: add one"
        return "/console" + place

    async def sent(
        self,
        page: Page,
        browser: Browser,
        *,
        token: str | None = None,
        method: str | None = None,
        cookie: str | None = None,
        **headers: str,
    ) -> Answer:
        """The answer to a request of this page as a browser sends it, with an empty form but for its token."""
        posts = page.method == "POST"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = browser._headers({"Origin": browser.gateway.base_url if posts else "", **named})
        if cookie is not None:
            sent["Cookie"] = cookie
        data = urlencode({} if token is None else {"token": token}) if posts else None
        if posts:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        url = browser.gateway.base_url + self.path(page)
        request = browser.session.request(method or page.method, url, data=data, headers=sent, allow_redirects=False)
        async with request as response:
            news = response.content_type == "text/event-stream"
            text = "" if news else await response.text()
            codes = re.findall(r'<p class="quiet">\d+ <code>(\w+)</code>', text)
            code = codes[0] if codes else ""
            if response.content_type == "application/json" and response.status >= 400:
                code = json.loads(text)["error"]["code"]
            head = "\n".join(f"{name}: {value}" for name, value in response.headers.items())
            return Answer(
                response.status,
                code,
                f"{head}\n\n{text}",
                response.headers.get("Location", ""),
                response.headers.get("Allow", ""),
            )


@asynccontextmanager
async def world(folder: Path, **sections: object) -> AsyncIterator[World]:
    (folder / "workflows").mkdir()
    (folder / "workflows" / "say.yaml").write_text(json.dumps(WORKFLOW))
    singles = [key(scope, scope, tenant="team") for scope in EVERY_SCOPE]
    clock = LaterClock()
    keys = (key("ann"), key("eve", tenant="other"), *singles)
    async with served(folder, *keys, clock=clock, **sections) as browser:
        ann = await browser.signed_in("ann")
        values = await objects(ann)
        await ann.get("/console/memories")
        console = await browser.gateway.gateway._built.console._assembled.get()
        yield World(browser, ann, list(console.console.pages), values, clock)


async def objects(ann: Browser) -> Mapping[str, str]:
    """Values for the variable parts of paths, by the path's beginning."""
    api, approval = ann.api(), await ann.asks()
    run = (await api.get(f"/context/approvals/{approval}")).json["run_id"]
    await api.sent("PUT", "/v1/system-prompts/reviewer", {"text": "You review."})
    await says(ann, "Remember that I like tea.", "tea")
    await says(ann, "Ask me before each call, please.", "careful")
    (asked,) = (await says(ann, WRITE, "one"))["approvals"]
    decision = {"decision": "approve", "sha256": asked["sha256"], "remember": "conversation"}
    assert (await api.post(f"/context/approvals/{asked['id']}", decision)).status == 200
    return {
        "/approvals/": approval,
        "/runs/": run,
        "/prompts/": "reviewer",
        "/memories/": (await api.get("/context/memories")).json["data"][0]["id"],
        "/remembered/grants/": (await api.get("/context/grants")).json["data"][0]["id"],
        "/remembered/asks/": (await api.get("/context/asks")).json["data"][0]["id"],
        "/workflows/": "say",
        "/services/": "missing",
        "/keys/": "key_missing",
        "/playground/": "context",
    }


async def says(browser: Browser, text: str, conversation: str) -> dict[str, list[dict[str, str]]]:
    """The `context` of the answer to a message in a conversation."""
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    headers = {"X-Gateway-Key": browser.key, "X-Context-Conversation": conversation}
    async with browser.session.post(browser.gateway.base_url + CHAT, json=body, headers=headers) as response:
        assert response.status == 200, await response.read()
        found: dict[str, list[dict[str, str]]] = (await response.json()).get("context", {})
        return found


def cookie_of(browser: Browser) -> str:
    ((name, value),) = ((n, v) for n, v in browser.cookies.items() if n.endswith("twolane_console"))
    return f"{name}={value}"


async def assert_signed_out(world: World, browser: Browser, *, cookie: str | None = None, token: str = "") -> None:
    """No page answers with anything but the way to the sign-in."""
    for page in world.pages:
        found = await world.sent(page, browser, cookie=cookie, token=token)
        if page.method == "GET":
            assert found.status == 303 and found.location.startswith("/console/sign-in"), page
            assert found.text.endswith("\n\n"), page
        else:
            assert (found.status, found.code) == (401, "signed_out"), page


async def assert_still_waits(world: World, *states: str) -> None:
    approval = await world.ann.api("ann-key").get("/context/approvals/" + world.values["/approvals/"])
    assert approval.json["state"] in (states or ("pending",))


# Sessions.


async def test_pages_require_a_valid_session_cookie(tmp_path: Path) -> None:
    """Nor with a cookie that is none, or was changed in any part."""
    async with world(tmp_path) as made:
        nobody, (name, _, value) = made.browser.another(), cookie_of(made.ann).partition("=")
        await assert_signed_out(made, nobody)
        head, _, signature = value.rpartition(".")
        flipped = "".join("A" if letter != "A" else "B" for letter in signature)
        for tampered in (
            "",
            "x",
            head,
            f"{head}.{flipped}",
            f"A{value}",
            f"{value}A",
            value[1:],
            f"{head}x.{signature}",
        ):
            await assert_signed_out(made, nobody, cookie=f"{name}={tampered}")
        await assert_still_waits(made)


async def test_expired_session_opens_no_page(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        token = (await made.ann.get("/console/runs")).token
        made.clock.ahead_s = 43_200.0
        await assert_signed_out(made, made.ann, token=token)


async def test_cookie_of_a_signed_out_session_opens_no_page(tmp_path: Path) -> None:
    """Also in other browsers that have it, and where sessions last longer afterwards."""
    async with world(tmp_path) as made:
        page, cookie = await made.ann.get("/console/runs"), cookie_of(made.ann)
        out = await made.ann.submit(page, "Sign out", follow=False)
        assert (out.status, out.location, made.ann.cookies) == (303, "/console/sign-in", {})
        await assert_signed_out(made, made.browser.another(), cookie=cookie, token=page.token)
        await made.browser.reload(console={"session": "720h"})
        made.clock.ahead_s = 43_201.0
        await made.browser.signed_in("eve")
        await (await made.browser.signed_in("ann")).get("/console/runs")
        await assert_signed_out(made, made.browser.another(), cookie=cookie, token=page.token)


async def test_reload_ends_sessions_of_removed_or_replaced_keys(tmp_path: Path) -> None:
    """A key of the same name with another text is another key. What was narrowed is narrow at once."""
    async with world(tmp_path) as made:
        token = (await made.ann.get("/console/runs")).token
        eve = await made.browser.signed_in("eve")
        await made.browser.reload(keys=[key("ann", text="another"), key("eve", "context", tenant="other")])
        await assert_signed_out(made, made.ann, token=token)
        assert (await eve.get("/console/runs")).status == 200
        assert (await eve.get("/console/status")).status == 403
        await made.browser.reload(keys=[key("ann", "metrics")])
        for page in made.pages:
            assert (await made.sent(page, made.ann, token=token)).code in ("scope_missing", ""), page
        await made.browser.reload(keys=[key("eve", tenant="other")])
        await assert_signed_out(made, made.ann, token=token)


@pytest.mark.parametrize("how", ["replaced", "signed out"])
async def test_slow_form_upload_is_authorized_after_its_body_arrived(tmp_path: Path, how: str) -> None:
    """Its key is replaced while it arrives: the later key of the same name decides on nothing that it sent."""
    async with world(tmp_path) as made:
        token = (page := await made.ann.get("/console/runs")).token
        approval = made.values["/approvals/"]
        body = urlencode({"token": token, "decision": "approve", "sha256": "", "back": "x"}).encode()
        base = made.browser.gateway.base_url
        head = (
            f"POST /console/approvals/{approval} HTTP/1.1\r\nHost: {base.removeprefix('http://')}\r\nOrigin: {base}\r\n"
            f"Cookie: {cookie_of(made.ann)}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        host, _, port = base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + body[:10])
        await writer.drain()
        await made.ann.get("/console/runs")  # by then the gateway has begun with the form
        if how == "replaced":
            await made.browser.reload(keys=[key("ann", text="another")])
        else:
            await made.ann.submit(page, "Sign out", follow=False)
        writer.write(body[10:])
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 401") and b"signed_out" in answer
        if how == "signed out":
            await assert_still_waits(made)


async def test_adding_keys_ends_all_keyless_sessions(tmp_path: Path) -> None:
    """Without keys a session begins by itself; it is no session of any key."""
    async with served(tmp_path) as browser:
        page = await browser.get("/console/runs")
        assert page.status == 200 and cookie_of(browser) and "Sign out" not in page.main
        assert (await browser.get("/console/sign-in", follow=False)).location == "/console"
        await browser.reload(keys=[key("ann")])
        assert (await browser.get("/console/runs", follow=False)).location.startswith("/console/sign-in")


# Scopes and tenants.


@pytest.mark.parametrize("scope", EVERY_SCOPE)
async def test_a_page_opens_for_its_scopes_only(tmp_path: Path, scope: str) -> None:
    async with world(tmp_path) as made:
        if scope not in ("approve", "context", "admin"):
            page = await made.browser.get("/console/sign-in")
            refused = await made.browser.submit(page, "Sign in", {"key": f"{scope}-key"})
            assert refused.status == 403 and "needs one of these scopes" in refused.problem
            assert not made.browser.cookies
            return
        person = await made.browser.signed_in(scope)
        token = await token_of(made, person)
        for page in sorted(made.pages, key=lambda page: page.path in ("/sign-out",)):
            found = await made.sent(page, person, token=token)
            refused = "Your key may not open this page" in found.text
            assert refused == (scope not in page.scopes), (page, found)
            assert found.status == 403 if refused else found.status < 500, (page, found)
        if scope != "approve":  # without it a person may cancel the run, and that ends its approval
            await assert_still_waits(made, "pending", "cancelled")


async def token_of(made: World, person: Browser) -> str:
    """The token of a person's forms, from any page that opens."""
    for path in ("/console/runs", "/console/status", "/console/services"):
        if (page := await person.get(path)).status == 200:
            return page.token
    raise AssertionError("no page opens")


async def test_objects_of_another_tenant_do_not_exist(tmp_path: Path) -> None:
    """Whatever the key may do: the answer is that of an id that was never given."""
    async with world(tmp_path) as made:
        eve = await made.browser.signed_in("eve")
        token = await token_of(made, eve)
        nothing = replace(made, values=dict.fromkeys(made.values, "ap_" + "0" * 26))
        of_tenants = [page for page in made.pages if "{" in page.path and page.path.split("/")[1] in OF_TENANTS]
        assert {page.path.split("/")[1] for page in of_tenants} == set(OF_TENANTS)
        for page in of_tenants:
            found = await made.sent(page, eve, token=token)
            assert is_unknown(page, found) and is_unknown(page, await nothing.sent(page, eve, token=token)), (
                page,
                found,
            )
        await assert_still_waits(made)
        assert (await made.ann.api().get("/v1/system-prompts/reviewer")).json["text"] == "You review."


def is_unknown(page: Page, found: Answer) -> bool:
    """A form that stores a prompt stores one of the reader's own tenant, which an empty one does not."""
    if page.path in ("/approvals/{id}", "/runs/{id}/settle") and page.method == "POST":
        return (found.status, found.code) == (400, "invalid_field")  # the form has no decision: nothing is looked up
    if page.path == "/prompts/{id}" and page.method == "POST":
        return found.status in (400, 404, 422)
    return found.status == 404


# Forms.


async def test_a_form_without_the_token_of_its_session_does_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        other = await made.browser.signed_in("ann")
        good = await token_of(made, made.ann)
        tokens = (None, "", "x", good[:-1], good + "0", good.upper(), await token_of(made, other))
        posts = [page for page in made.pages if page.method == "POST"]
        assert len(posts) > 10
        for page in posts:
            for token in tokens:
                found = await made.sent(page, made.ann, token=token)
                assert (found.status, found.code) == (403, "form_not_valid"), (page, token)
            as_json = await made.ann.post(made.path(page), {"token": good}, **{"Content-Type": "application/json"})
            assert as_json.status == 415, page
        await assert_still_waits(made)
        assert (await made.ann.get("/console/runs", follow=False)).status == 200


FOREIGN: Iterable[tuple[str, Mapping[str, str], int]] = (
    ("another site", {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
    ("another site, an old browser", {"Origin": "https://evil.example", "Sec-Fetch-Site": ""}, 403),
    ("another port of this machine", {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}, 403),
    ("a page without an origin", {"Origin": "null"}, 403),
    ("a script of another site", {"Origin": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
    ("a name that was rebound", {"Host": "evil.example", "Origin": "http://evil.example"}, 403),
    *((f"inside <{kind}>", {"Sec-Fetch-Dest": kind}, 403) for kind in ("iframe", "frame", "embed", "object")),
    ("inside <fencedframe>", {"Sec-Fetch-Dest": "fencedframe"}, 403),
)


@pytest.mark.parametrize(("headers", "status"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
async def test_cross_site_requests_are_refused_on_every_page(
    tmp_path: Path, headers: Mapping[str, str], status: int
) -> None:
    """With the cookie and the token of a person who may do everything."""
    async with world(tmp_path) as made:
        token = await token_of(made, made.ann)
        for page in made.pages:
            found = await made.sent(page, made.ann, token=token, **{n.replace("-", "_"): v for n, v in headers.items()})
            assert found.status == status, (page, found)
        await assert_still_waits(made)


async def test_undefined_methods_of_a_page_change_nothing(tmp_path: Path) -> None:
    """GET and HEAD decide on nothing, whatever their query says."""
    async with world(tmp_path) as made:
        token = await token_of(made, made.ann)
        of_path: dict[str, set[str]] = {}
        for page in made.pages:
            of_path.setdefault(made.path(page), set()).add(page.method)
        for page in made.pages:
            for method in ("HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                if method not in of_path[made.path(page)] and (
                    method != "HEAD" or "GET" not in of_path[made.path(page)]
                ):
                    found = await made.sent(replace(page, method="POST"), made.ann, token=token, method=method)
                    assert found.status in (404, 405), (page, method)
                    assert found.status == 404 or set(found.allowed.split(", ")) >= of_path[made.path(page)]
        approval = f"/console/approvals/{made.values['/approvals/']}"
        for path in (approval, "/console/approvals/batch"):
            query = urlencode({"decision": "approve", "token": token, "approval": made.values["/approvals/"]})
            for method in ("GET", "HEAD"):
                assert (await made.ann.get(f"{path}?{query}", method=method)).status in (200, 404)
        await assert_still_waits(made)


# Secrets.


async def test_secrets_appear_in_no_page_header_url_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The session's id and the lent tokens stand in no page, header, address or log line, and no key anywhere."""
    caplog.set_level("DEBUG")
    async with world(tmp_path, logging={"access": True, "level": "debug"}) as made:
        token = await token_of(made, made.ann)
        cookie = cookie_of(made.ann).partition("=")[2]
        lent = list(made.browser.gateway.gateway._state.lent._tokens.values())
        assert lent and all(one.startswith("lent-") for one in lent)
        stays = [page for page in made.pages if page.path != "/sign-out"]
        answers = [(await made.sent(page, made.ann, token=token)).text for page in stays]
        await made.sent(made.pages[0], made.ann, cookie=cookie_of(made.ann)[:-2])
        page = await made.browser.get("/console/sign-in")
        await made.browser.submit(page, "Sign in", {"key": "guessed-key"})
        assert not (await made.browser.submit(page, "Sign in", {"key": lent[0]})).cookies
        secrets = (cookie, *cookie.strip(".").split("."), *lent, "lent-", "ann-key", "guessed-key")
        logged = made.browser.gateway.get_log()
        assert "/console/runs" in logged and "a wrong key was refused: POST /console/sign-in" in caplog.text
        for text in (*answers, logged, caplog.text):
            for secret in secrets:
                assert secret not in text


async def test_playground_never_forwards_lent_tokens_to_an_upstream(tmp_path: Path) -> None:
    """The playground sends a message through passthrough with the reader's token, which is the gateway's alone."""
    async with FakeUpstream(FINE) as upstream:
        entry = {"name": "up", "base_url": upstream.base_url}
        async with served(tmp_path, key("ann"), upstreams=[entry]) as browser:
            ann = await browser.signed_in("ann")
            page = await ann.get("/console/playground")
            for lane in ("passthrough", "context"):
                await ann.post(f"/console/playground/{lane}", {"token": page.token, "model": "m", "message": "hi"})
        assert upstream.requests
        for request in upstream.requests:
            assert b"lent-" not in request.raw and b"x-gateway-key" not in request.raw.lower()
