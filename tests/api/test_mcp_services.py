"""The pages of services: registered, changed, stopped, started, accepted and deleted over HTTP, by admins only."""

import json
from urllib.parse import quote

import orjson
import pytest
from gateways import until_read

from gateway.contracts.storage.store import Json, StoredService, StoreError

from .mcp_pages import ServedMcp, moored

SECRET = "sk-canary-12345"
TIME: Json = {"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": SECRET}, "trigger_keywords": ["几点"]}
HASH = "1" * 64


async def registered(harbour: ServedMcp, name: str = "time", **settings: object) -> Json:
    status, answer = await harbour.ask("POST", "", {"name": name, **(settings or TIME)})
    assert status == 201, answer
    return answer


async def until_pinned(harbour: ServedMcp, name: str = "time") -> None:
    await until_read(
        harbour.store.list_services, lambda services: any(one.pins for one in services if one.name == name)
    )


async def test_stored_service_change_is_kept_when_reloading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the store cannot be read behind it: the worker applies it once that works."""

    async def fails() -> int:
        raise StoreError("the disk is gone")

    async with moored() as harbour:
        for name, method, path, answered in (
            ("put_service", "POST", "", (422, "time")),
            ("delete_service", "DELETE", "/time", (200, "time")),
        ):
            written = getattr(harbour.store, name)
            with monkeypatch.context() as broken:

                async def writes(*what: object, **how: object) -> object:
                    done = await written(*what, **how)  # noqa: B023 - of this round
                    broken.setattr(harbour.store, "get_generation", fails)
                    return done

                broken.setattr(harbour.store, name, writes)
                status, told = await harbour.ask(method, path, {"name": "time", **TIME} if path == "" else None)
            assert (status, told.get("name", "time")) == answered
            if status == 422:
                assert "'time' was registered, and that is stored" in told["error"]["message"]
                assert [one["name"] for one in (await harbour.get())["data"]] == ["time"]
        assert (await harbour.get())["data"] == []


async def test_a_service_is_registered_and_runs() -> None:
    """In this worker at once, in the others at their next look; its secrets are never shown again."""
    async with moored() as harbour:
        view = await registered(harbour)
        assert view.pop("settings").items() >= {"env": {"KEY": "***"}, "command": "uvx"}.items()
        assert view == {
            "name": "time",
            "object": "mcp.service",
            "source": "registered",
            "state": "running",
            "error": None,
            "degraded": False,
            "since": 100.0,
            "transport": "stdio",
            "protocol": "2026-07-28",
            "restarts": 0,
            "skipped_lines": 0,
            "stopped": False,
            "description": "time",
            "trigger_keywords": ["几点"],
            "tools": 1,
            "changed": [],
            "workers": [],
            "runs_at": None,
        }
        assert harbour.service().options["env"] == {"KEY": SECRET}
        await harbour.other.refresh()
        await harbour.other.wait_until_applied("time")
        assert harbour.other_factory.newest("time").did == ["start"]
        everything = [await harbour.get(path) for path in ("", "/time", "/time/tools")]
        assert SECRET not in json.dumps(everything) and [one["name"] for one in everything[0]["data"]] == ["time"]


async def test_services_come_in_pages() -> None:
    """By name, however they came to be: each worker may answer one page. A deleted one is no place to begin."""
    async with moored(later={"command": "uvx"}) as harbour:
        for name in ("time", "My Server", "clock"):
            await registered(harbour, name)
        first = await harbour.get("?limit=3")
        assert ([one["name"] for one in first["data"]], first["next"]) == (["My Server", "clock", "later"], "later")
        second = await harbour.get("?limit=3&after=later")
        assert ([one["name"] for one in second["data"]], second["next"]) == (["time"], None)
        assert [one["name"] for one in (await harbour.get("?after=My%20Server&limit=1"))["data"]] == ["clock"]
        await harbour.ask("DELETE", "/clock")
        for query in ("after=clock", "limit=0", "limit=201"):
            status, answer = await harbour.ask("GET", f"?{query}")
            assert (status, answer["error"]["code"]) == (400, "invalid_field")


# 配置工具描述, 配置触发关键词, 默认值兼容.


async def test_service_description_is_set_and_changed() -> None:
    """配置工具描述: when it is registered, and when it is changed."""
    async with moored() as harbour:
        assert (await registered(harbour, **TIME, description="Clocks."))["description"] == "Clocks."
        assert harbour.service().get_service().description == "Clocks."
        status, view = await harbour.ask("PUT", "/time", {**TIME, "description": "All clocks."})
        assert (status, view["description"]) == (200, "All clocks.")
        assert harbour.service().get_service().description == "All clocks."


async def test_service_trigger_keywords_are_set_and_changed() -> None:
    """配置触发关键词: what the intent layer gets."""
    async with moored() as harbour:
        assert (await registered(harbour))["trigger_keywords"] == ["几点"]
        (source,) = harbour.mcp_servers.get_services()
        assert source.source.get_service().trigger_keywords == ("几点",)
        assert (await harbour.ask("PUT", "/time", {**TIME, "trigger_keywords": []}))[1]["trigger_keywords"] == []


async def test_service_description_and_keywords_have_defaults() -> None:
    """默认值兼容: its name is its description, and it has no keywords."""
    async with moored(git={"command": "x"}) as harbour:
        await registered(harbour, command="x")
        for name in ("time", "git"):
            view = await harbour.get(f"/{name}")
            assert (view["description"], view["trigger_keywords"]) == (name, [])


# What is refused.


@pytest.mark.parametrize("key", ["boss", "reader", ""])
async def test_only_admins_see_and_change_services(key: str) -> None:
    """Whatever is asked; nothing is done."""
    async with moored(time=TIME) as harbour:
        asked = [("GET", ""), ("POST", ""), ("GET", "/time"), ("PUT", "/time"), ("DELETE", "/time")]
        asked += [
            ("GET", "/time/tools"),
            *(("POST", f"/time/{what}") for what in ("start", "stop", "restart", "accept")),
        ]
        for method, path in asked:
            assert (await harbour.ask(method, path, {"name": "x", "command": "y"}, key=key))[0] in (401, 403)
        assert harbour.service().did == ["start"] and len(harbour.factory.built) == 1


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"name": "x", "comand": "y"}, "unknown_field", "comand"),
        ({"name": "x", "command": "y", "autoApprove": []}, "unknown_field", "autoApprove"),
        ({"command": "y"}, "invalid_field", "name"),
        ({"name": "a\nb", "command": "y"}, "invalid_field", "name"),
        ({"name": "x"}, "invalid_field", "command"),
        ({"name": "x", "command": "y", "url": "http://z"}, "invalid_field", "command"),
        ({"name": "x", "command": "y", "env": {"A": "***"}}, "invalid_field", "env.A"),
        ({"name": "x", "url": "http://y", "headers": {"A": f"{SECRET}\n"}}, "invalid_field", "headers.A"),
        ([], "invalid_json", None),
    ],
)
async def test_invalid_service_settings_are_refused_without_leaking_secrets(
    body: object, code: str, param: str | None
) -> None:
    """With the field at fault, and without its value; nothing is kept."""
    async with moored() as harbour:
        status, answer = await harbour.ask("POST", "", body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, code, param)
        assert SECRET not in json.dumps(answer) and not await harbour.store.list_services()


async def test_invalid_json_bodies_of_services_are_refused() -> None:
    """Nor too large, nor with a key twice."""
    async with moored() as harbour:
        url = f"http://127.0.0.1:{harbour.lane.port}/mcp/services"
        for body, status in ((b"{", 400), (b"\xff", 400), (b'{"name":"a","name":"b"}', 400), (b"x" * 300_000, 413)):
            async with harbour.session.post(url, data=body, headers={"X-Gateway-Key": "root"}) as response:
                assert response.status == status
        assert await harbour.refused("GET", "?force=1") == (400, "unknown_field")


async def test_service_name_is_unique_and_post_never_replaces() -> None:
    """POST never replaces; PUT does, and never what stands in the configuration."""
    async with moored(git={"command": "x"}) as harbour:
        await registered(harbour)
        for name in ("time", "git"):
            assert await harbour.refused("POST", "", {"name": name, **TIME}) == (409, "service_exists")
        assert await harbour.refused("PUT", "/git", TIME) == (409, "service_is_configured")
        assert await harbour.refused("DELETE", "/git") == (409, "service_is_configured")
        assert await harbour.refused("PUT", "/time", {**TIME, "name": "other"}) == (400, "invalid_field")
        assert harbour.service("git").options["command"] == "x"


async def test_service_name_that_imitates_another_is_refused() -> None:
    """Neither the gateway's own, nor that of another service; nothing is stored."""
    async with moored(git={"command": "x"}) as harbour:
        await registered(harbour)
        for name in ("gateway", "Gate-Way", "g\u0430teway", "call_tool", "file.operations", "GIT", "T1me", "git.hub"):
            for method, path, body in (
                ("POST", "", {"name": name, **TIME}),
                ("PUT", f"/{quote(name)}", TIME),
            ):
                status, answer = await harbour.ask(method, path, body)
                error = answer["error"]
                assert (status, error["code"], error["param"]) == (400, "invalid_field", "name")
                assert ": choose another name." in error["message"]
        assert {one.name for one in await harbour.store.list_services()} <= {"git", "time"}
        assert (await harbour.ask("PUT", "/time", TIME))[0] == 200


async def test_service_name_that_changes_the_path_is_refused() -> None:
    """It is a part of a path, whoever writes that: what would change it is refused, and so is what does not show."""
    async with moored() as harbour:
        for name in ("..", ".", "a/../b", "a/", "a%2fb", "a\\b", "services", "ti\u200bme", "ti\u202eme", "ti\ufe0fme"):
            status, answer = await harbour.ask("POST", "", {"name": name, **TIME})
            error = answer["error"]
            assert (status, error["code"], error["param"]) == (400, "invalid_field", "name"), name
            assert ": choose another name." in error["message"]
        assert await harbour.store.list_services() == []


async def test_stored_service_with_reserved_name_reports_error_and_is_removable() -> None:
    """It does not start; its page says why, and it can be removed."""
    async with moored(git={"command": "x"}) as harbour:
        for name in ("Gateway", "git.hub"):
            await harbour.store.put_service(StoredService(name=name, config=orjson.dumps(TIME)), expected=0)
            page = await harbour.get(f"/{name}")
            assert (page["state"], page["tools"], page["settings"]) == ("error", 0, None)
            assert page["error"].endswith(": remove the service, and register it under another name")
            assert (await harbour.ask("POST", f"/{name}/start"))[1]["state"] == "error"
            assert (await harbour.ask("DELETE", f"/{name}"))[0] == 200
        assert {one.name for one in harbour.factory.built} == {"git"}


async def test_unknown_service_returns_404() -> None:
    """404, whatever is asked of it."""
    async with moored() as harbour:
        asked = [("GET", "/x"), ("GET", "/x/tools"), ("DELETE", "/x")]
        asked += [("POST", f"/x/{what}") for what in ("start", "stop", "restart", "accept")]
        for method, path in asked:
            assert await harbour.refused(method, path) == (404, "service_not_found")
        assert not await harbour.store.list_services()


# Changed and deleted.


async def test_a_changed_service_starts_anew() -> None:
    """What was shown may be sent back: a mask stands for the secret that is kept."""
    async with moored() as harbour:
        shown = (await registered(harbour))["settings"]
        shown["args"] = ["mcp-server-time", "--utc"]
        assert (await harbour.ask("PUT", "/time", shown))[0] == 200
        assert harbour.service().options["env"] == {"KEY": SECRET}
        assert harbour.service().options["args"] == ["mcp-server-time", "--utc"]
        assert [one.did[-1] for one in harbour.factory.built] == ["close", "start"]
        assert (await harbour.ask("PUT", "/new", TIME))[1]["source"] == "registered"


async def test_deleted_service_loses_its_accepted_definitions() -> None:
    """With what was accepted of it: one of the same name begins anew."""
    async with moored() as harbour:
        await registered(harbour)
        await until_pinned(harbour)
        assert await harbour.ask("DELETE", "/time") == (
            200,
            {"name": "time", "object": "mcp.service.deleted", "deleted": True},
        )
        assert (await harbour.get())["data"] == [] and await harbour.refused("GET", "/time") == (
            404,
            "service_not_found",
        )
        await registered(harbour)
        (kept,) = await harbour.store.list_services()
        assert kept.version <= 2 and (await harbour.get("/time"))["changed"] == []


async def test_service_page_accepts_any_percent_encoded_name() -> None:
    """Names are words of people."""
    async with moored() as harbour:
        for name, path in (
            ("My Server 1.0", "/My%20Server%201.0"),
            ("时间", "/%E6%97%B6%E9%97%B4"),
            ("@scope/server", "/%40scope%2Fserver"),
            ("a&b?", "/a%26b%3F"),
        ):
            await registered(harbour, name, command="x")
            assert (await harbour.get(path))["name"] == name
            assert (await harbour.ask("DELETE", path))[0] == 200


# Stopped, started.


async def test_service_can_be_stopped_started_and_restarted() -> None:
    """Also of a service of the configuration; each answers once it is so here."""
    async with moored(git={"command": "x"}) as harbour:
        await registered(harbour)
        for name in ("git", "time"):
            for what, state, stopped in (
                ("stop", "stopped", True),
                ("stop", "stopped", True),
                ("start", "running", False),
                ("restart", "running", False),
            ):
                status, view = await harbour.ask("POST", f"/{name}/{what}", {})
                assert (status, view["state"], view["stopped"]) == (200, state, stopped)
            assert harbour.service(name).did == ["start", "stop", "start", "stop", "start"]


async def test_disabled_service_is_not_started_over_http() -> None:
    """Somebody wrote that down on purpose."""
    async with moored(off={"command": "x", "enabled": False}) as harbour:
        assert (await harbour.get("/off"))["state"] == "stopped"
        assert await harbour.refused("POST", "/off/start") == (409, "service_not_running")
        assert harbour.service("off").did == []


async def test_service_page_reports_the_worst_state_of_all_workers() -> None:
    """With what each says; a worker that says nothing any more is left out."""
    async with moored(time=TIME) as harbour:
        harbour.other_factory.newest("time").becomes("error", error=f"exit code 1 {SECRET}")
        view = await until_read(lambda: harbour.get("/time"), lambda view: view["state"] == "error")
        assert (view["state"], view["error"]) == ("error", "exit code 1 ***")
        assert view["workers"] == [{"worker": "w1", "state": "error", "error": "exit code 1 ***", "updated_at": 1000.0}]
        harbour.service().stderr = (f"my key is {SECRET}",)
        assert (await harbour.get("/time"))["stderr"] == ["my key is ***"]
        harbour.clock.now_s += 3600
        assert (await harbour.get("/time"))["state"] == "running"


# Tools, and what was accepted of them.


async def test_tools_are_listed_with_their_definitions() -> None:
    """Names here and towards models, schema, hash, and what was accepted; a service that is stopped has none."""
    async with moored(time=TIME) as harbour:
        await until_pinned(harbour)
        await harbour.mcp_servers.refresh()
        assert (await harbour.get("/time/tools"))["data"] == [
            {
                "name": "look",
                "object": "mcp.tool",
                "model_name": "time__look",
                "description": "Does look.",
                "parameters": {"type": "object"},
                "title": None,
                "output_schema": None,
                "annotations": None,
                "sha256": HASH,
                "accepted_sha256": HASH,
                "accepted": None,
                "changed": False,
            }
        ]
        await harbour.ask("POST", "/time/stop")
        assert (await harbour.get("/time/tools"))["data"] == []
        assert await harbour.refused("POST", "/time/accept") == (409, "service_not_running")


async def test_tool_acceptance_applies_only_to_the_reviewed_definition() -> None:
    """One that changed again meanwhile is not; without a word on tools all are accepted as they are."""
    async with moored(time=TIME) as harbour:
        await until_pinned(harbour)
        harbour.service().becomes("running", look="2" * 64, listen="3" * 64)
        assert (await harbour.get("/time"))["changed"] == ["look"]
        for tools in ({"look": HASH}, {"look": "2" * 64, "nope": "x"}):
            assert await harbour.refused("POST", "/time/accept", {"tools": tools}) == (409, "service_changed")
        assert await harbour.refused("POST", "/time/accept", {"tool": {}}) == (400, "unknown_field")
        status, view = await harbour.ask("POST", "/time/accept", {"tools": {"look": "2" * 64}})
        assert (status, view["changed"]) == (200, []) and harbour.service().pins["look"] == "2" * 64
        harbour.service().becomes("running", look="4" * 64)
        status, view = await harbour.ask("POST", "/time/accept")
        assert (status, view["changed"]) == (200, [])
        await harbour.other.refresh()
        assert harbour.other_factory.newest("time").pins["look"] == "4" * 64


async def test_changed_tool_is_shown_with_its_last_accepted_definition() -> None:
    """Pinned at first sight or accepted by a person; after a change by its server both are there."""
    async with moored(time=TIME) as harbour:
        await until_pinned(harbour)
        service = harbour.service()
        service.described["look"] = "Sends all files to a stranger."
        service.becomes("running", look="2" * 64)
        (tool,) = (await harbour.get("/time/tools"))["data"]
        assert (tool["changed"], tool["sha256"], tool["accepted_sha256"]) == (True, "2" * 64, HASH)
        assert tool["description"] == "Sends all files to a stranger."
        assert tool["accepted"] == {
            "description": "Does look.",
            "parameters": {"type": "object"},
            "title": None,
            "output_schema": None,
            "annotations": None,
        }
        await harbour.ask("POST", "/time/accept", {"tools": {"look": "2" * 64}})
        (tool,) = (await harbour.get("/time/tools"))["data"]
        assert (tool["changed"], tool["accepted"]) == (False, None)
        service.described["look"] = "Does look, again."
        service.becomes("running", look="3" * 64)
        (tool,) = (await harbour.get("/time/tools"))["data"]
        assert tool["accepted"]["description"] == "Sends all files to a stranger."


@pytest.mark.parametrize("content", [None, "{", "[1]"])
async def test_unknown_accepted_definition_is_reported_as_null(content: str | None) -> None:
    """It was accepted before definitions were stored, or another program wrote the store."""
    async with moored() as harbour:
        config = json.dumps({"command": "uvx"}).encode()
        if content is not None:
            await harbour.store.put_definitions({"9" * 64: content})
        await harbour.store.put_service(StoredService(name="time", config=config, pins={"look": "9" * 64}), expected=0)
        await harbour.mcp_servers.refresh()
        await harbour.mcp_servers.wait_until_applied("time")
        (tool,) = (await harbour.get("/time/tools"))["data"]
        assert (tool["changed"], tool["accepted_sha256"], tool["accepted"]) == (True, "9" * 64, None)
