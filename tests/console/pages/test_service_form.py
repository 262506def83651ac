"""The forms that register and change a service: fields, errors beside what was entered, secrets that stay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.console.browsing import Browser, key, served
from tests.mcp.misbehaving import command

PROGRAM, *ARGUMENTS = command("ok")
FORM = "/console/tools/new-service"


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[Browser]:
    async with served(tmp_path, key("root", "admin"), key("ann", "context", "approve")) as browser:
        yield await browser.signed_in("root")


async def settings_of(root: Browser, name: str = "notes") -> dict[str, object]:
    found: dict[str, object] = (await root.api().get(f"/mcp/services/{name}")).json["settings"]
    return found


async def test_a_service_is_added(root: Browser) -> None:
    page = await root.get(FORM)
    fields = {
        "name": "notes",
        "command": PROGRAM,
        "args": "\n".join(ARGUMENTS),
        "env": '{"TOKEN": "very-secret-1"}',
        "trigger_keywords": "memo\nnote",
        "further": '{"timeout": "5s"}',
    }
    seen = await root.submit(page, "Add and start it", fields)
    assert (seen.status, seen.heading) == (200, "notes")
    settings = await settings_of(root)
    assert settings["args"] == ARGUMENTS
    assert (settings["trigger_keywords"], settings["timeout"]) == (["memo", "note"], "5s")
    assert settings["env"] == {"TOKEN": "***"}


async def test_failed_service_form_keeps_the_entered_values(root: Browser) -> None:
    page = await root.get(FORM)
    fields = {"name": "notes", "command": "python", "url": "https://mcp.example/mcp", "args": "-m\nclock"}
    seen = await root.submit(page, "Add and start it", fields)
    assert seen.status == 400
    assert "expected either command or url" in seen.problem.lower()
    form = dict(seen.form("Add and start it").fields)
    assert {name: form[name] for name in fields} == {**fields, "args": "-m\nclock"}
    (field,) = [one for one in seen.root.all("input") if one.attributes.get("aria-invalid") == "true"]
    assert field.attributes["name"] == "command"


@pytest.mark.parametrize(
    ("field", "label", "text"),
    [("env", "Environment", "{"), ("headers", "Header fields", "1 2"), ("further", "Further settings", '["a"]')],
)
async def test_invalid_json_field_is_reported_by_its_label(root: Browser, field: str, label: str, text: str) -> None:
    seen = await root.submit(await root.get(FORM), "Add and start it", {"name": "notes", field: text})
    assert seen.status == 422
    assert seen.problem.startswith(f"{label}: this is not ")
    assert dict(seen.form("Add and start it").fields)[field] == text


async def test_service_form_refuses_a_taken_name(root: Browser) -> None:
    for status in (200, 409):
        seen = await root.submit(await root.get(FORM), "Add and start it", {"name": "notes", "command": "true"})
        assert seen.status == status


async def test_a_change_keeps_secrets_that_stay_masked(root: Browser) -> None:
    settings = {"command": PROGRAM, "args": ARGUMENTS, "env": {"TOKEN": "very-secret-1", "MODE": "very-secret-2"}}
    assert (await root.api().post("/mcp/services", {"name": "notes", **settings})).status == 201
    page = await root.get("/console/services/notes/change")
    assert "very-secret" not in page.html
    seen = await root.submit(page, "Save and start anew", {"description": "Keeps notes."})
    assert (seen.status, "Saved." in seen.main) == (200, True)
    now = await settings_of(root)
    assert (now["description"], now["env"]) == ("Keeps notes.", {"TOKEN": "***", "MODE": "***"})


async def test_unchanged_service_form_changes_no_setting(root: Browser) -> None:
    settings = {
        "url": "https://mcp.example/mcp?key=very-secret-1",
        "headers": {"Authorization": "very-secret-2"},
        "timeouts": {"slow": "5m"},
        "idempotent": ["find"],
        "requires_approval": True,
        "enabled": False,
    }
    assert (await root.api().post("/mcp/services", {"name": "notes", **settings})).status == 201
    before = await settings_of(root)
    seen = await root.submit(await root.get("/console/services/notes/change"), "Save and start anew")
    assert seen.status == 200
    assert await settings_of(root) == before


async def test_masked_secret_without_a_stored_value_is_refused(root: Browser) -> None:
    fields = {"name": "notes", "command": "true", "env": '{"TOKEN": "***"}'}
    seen = await root.submit(await root.get(FORM), "Add and start it", fields)
    assert seen.status == 400
    assert seen.problem.startswith("env.TOKEN: ")


async def test_service_form_escapes_its_input(root: Browser) -> None:
    fields = {"name": '"><script>1</script>', "command": "</textarea>", "args": "</textarea><b>", "env": "<b>"}
    seen = await root.submit(await root.get(FORM), "Add and start it", fields)
    assert "<script>1" not in seen.html and "<b>" not in seen.html
    form = dict(seen.form("Add and start it").fields)
    assert {name: form[name] for name in fields} == fields


async def test_service_forms_are_restricted_to_operators(root: Browser) -> None:
    ann = await root.another().signed_in("ann")
    for path in (FORM, "/console/services/notes/change"):
        assert (await ann.get(path)).status == 403
