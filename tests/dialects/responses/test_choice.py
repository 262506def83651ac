"""`tool_choice`: what the model may call, and what it must."""

import pytest

from gateway.contracts.storage.store import Json

from .requests import FUNCTION, asked, refusal

OTHER: Json = {"type": "function", "name": "hear"}
CUSTOM: Json = {"type": "custom", "name": "sql"}
BOX: Json = {"type": "mcp", "server_label": "box"}
OWN: Json = {"type": "mcp", "server_label": "gateway", "allowed_tools": ["run_command", "read_file"]}
SEARCH: Json = {"type": "web_search"}


def named(name: str) -> Json:
    """Return a choice as chat completions have it."""
    return {"type": "function", "function": {"name": name}}


def names(body: Json) -> list[str]:
    """Return the names of the functions that models get."""
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def test_tool_choice_none_disables_all_tools() -> None:
    found = asked(tools=[FUNCTION, BOX], tool_choice="none")
    assert found.wishes.no_tools and found.body["tool_choice"] == "none" and names(found.body) == ["look"]
    assert asked(tool_choice="none").wishes.no_tools and "tool_choice" not in asked(tool_choice="none").body


def test_tool_choice_auto_and_required_are_forwarded() -> None:
    assert asked(tools=[FUNCTION], tool_choice="auto").body["tool_choice"] == "auto"
    found = asked(tools=[FUNCTION], tool_choice="required")
    assert (found.body["tool_choice"], found.wishes.notes, found.wishes.no_tools) == ("required", (), False)


def test_tool_choice_selects_a_client_tool_by_name() -> None:
    found = asked(tools=[FUNCTION, CUSTOM], tool_choice={"type": "function", "name": "look"})
    assert found.body["tool_choice"] == named("look") and names(found.body) == ["look", "sql"]
    assert asked(tools=[CUSTOM], tool_choice=CUSTOM).body["tool_choice"] == named("sql")
    assert asked(tools=[{"type": "shell"}], tool_choice={"type": "shell"}).body["tool_choice"] == named("shell")
    space = {"type": "namespace", "name": "crm", "tools": [FUNCTION]}
    choice = {"type": "function", "name": "look"}
    assert asked(tools=[space], tool_choice=choice).body["tool_choice"] == named("crm__look")


def test_forced_gateway_tool_becomes_an_instruction_to_the_model() -> None:
    """No field of a chat completion forces a call of a tool that only the gateway knows."""
    found = asked(tools=[FUNCTION, BOX, OWN], tool_choice={"type": "mcp", "server_label": "box", "name": "look.up"})
    (offer,) = found.wishes.offers or ()
    assert (offer.label, offer.names, offer.place) == ("box", ("look.up",), "tools[1]")
    assert "tools" not in found.body and "tool_choice" not in found.body and not found.client_tools
    assert found.wishes.notes == ("Before you answer, you must call a tool: `box__look__up`.",)
    found = asked(tools=[BOX, OWN], tool_choice={"type": "mcp", "server_label": "gateway"})
    assert found.wishes.notes == ("Before you answer, you must call a tool: `run_command`, or `read_file`.",)


def test_tool_choice_required_with_gateway_tools_adds_a_note() -> None:
    found = asked(tools=[FUNCTION, BOX], tool_choice="required")
    assert found.body["tool_choice"] == "auto"
    note = "Before you answer, you must call a tool: `look`, or one of the service `box`."
    assert found.wishes.notes == (note,)
    found = asked(tools=[{"type": "mcp", "server_label": "gateway"}], tool_choice="required")
    assert found.wishes.notes == ("Before you answer, you must call a tool: one of the gateway's own.",)


def allowed(*tools: object, mode: str | None = None) -> Json:
    return {"type": "allowed_tools", "tools": list(tools), **({} if mode is None else {"mode": mode})}


def test_allowed_tools_removes_all_other_tools() -> None:
    tools = [FUNCTION, OTHER, CUSTOM, BOX, OWN]
    found = asked(tools=tools, tool_choice=allowed({"type": "function", "name": "hear"}, CUSTOM))
    assert names(found.body) == ["hear", "sql"] and found.body["tool_choice"] == "auto"
    assert list(found.client_tools) == ["hear", "sql"]
    assert found.wishes.offers == () and found.wishes.no_tools
    found = asked(tools=tools, tool_choice=allowed(BOX))
    assert "tools" not in found.body and "tool_choice" not in found.body and not found.wishes.no_tools
    assert [(offer.label, offer.names) for offer in found.wishes.offers or ()] == [("box", None)]


def test_allowing_only_client_tools_disables_gateway_tools() -> None:
    """That holds for a request that names none of them, too: its calls would be hidden."""
    found = asked(tools=[FUNCTION, OTHER], tool_choice=allowed(OTHER))
    assert found.wishes.no_tools and found.wishes.offers is None


def test_references_to_one_service_in_allowed_tools_are_merged() -> None:
    first, second = ({"type": "mcp", "server_label": "gateway", "name": n} for n in ("read_file", "run_command"))

    def offered(*references: Json) -> list[tuple[str, ...] | None]:
        return [offer.names for offer in asked(tools=[OWN, BOX], tool_choice=allowed(*references)).wishes.offers or ()]

    assert offered(first, second, first) == [("read_file", "run_command")]
    assert offered(first, {"type": "mcp", "server_label": "gateway"}) == [("read_file", "run_command")]
    assert offered({**BOX, "name": "a"}, BOX, {**BOX, "name": "b"}) == [None]


def test_allowed_tools_in_required_mode_require_a_call() -> None:
    found = asked(tools=[FUNCTION, OTHER], tool_choice=allowed(OTHER, mode="required"))
    assert found.body["tool_choice"] == "required" and names(found.body) == ["hear"]
    found = asked(tools=[FUNCTION, BOX], tool_choice=allowed(BOX, mode="required"))
    assert found.wishes.notes == ("Before you answer, you must call a tool: one of the service `box`.",)


def test_hosted_tool_in_allowed_tools_is_left_out() -> None:
    found = asked(tools=[FUNCTION, SEARCH], tool_choice=allowed(SEARCH, FUNCTION))
    assert found.left_out == ("web_search",) and names(found.body) == ["look"]


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([FUNCTION, SEARCH], {"type": "web_search"}, "tools[1]"),
        ([SEARCH], "required", "tools[0]"),
        ([FUNCTION, SEARCH], allowed(SEARCH, mode="required"), "tools[1]"),
    ],
)
def test_required_hosted_tool_is_refused(tools: list[Json], choice: object, param: str) -> None:
    error = refusal(tools=tools, tool_choice=choice)
    assert (error.code, error.param) == ("unsupported_parameter", param) and "'web_search'" in error.message


@pytest.mark.parametrize(
    ("choice", "code", "param"),
    [
        ("any", "invalid_field", "tool_choice"),
        ("", "invalid_field", "tool_choice"),
        ([], "invalid_field", "tool_choice"),
        ({}, "missing_field", "tool_choice.type"),
        ({"type": 5}, "invalid_field", "tool_choice.type"),
        ({"type": ["function"]}, "invalid_field", "tool_choice.type"),
        ({"type": "function"}, "missing_field", "tool_choice.name"),
        ({"type": "function", "name": 5}, "invalid_field", "tool_choice.name"),
        ({"type": "function", "name": "smell"}, "invalid_field", "tool_choice"),
        ({"type": "custom", "name": "look"}, "invalid_field", "tool_choice"),
        ({"type": "web_search"}, "invalid_field", "tool_choice"),
        ({"type": "shell"}, "invalid_field", "tool_choice"),
        ({"type": "teleport"}, "invalid_field", "tool_choice"),
        ({"type": "mcp"}, "missing_field", "tool_choice.server_label"),
        ({"type": "mcp", "server_label": "bax"}, "invalid_field", "tool_choice.server_label"),
        ({"type": "mcp", "server_label": "gateway", "name": "rm"}, "invalid_field", "tool_choice.name"),
        ({"type": "allowed_tools"}, "missing_field", "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": {}}, "invalid_field", "tool_choice.tools"),
        (allowed(mode="never"), "invalid_field", "tool_choice.mode"),
        (allowed(5), "invalid_field", "tool_choice.tools[0]"),
        (allowed(FUNCTION, OTHER), "invalid_field", "tool_choice.tools[1]"),
        (allowed(mode="required"), "invalid_field", "tool_choice.mode"),
    ],
)
def test_invalid_tool_choice_is_refused(choice: object, code: str, param: str) -> None:
    error = refusal(tools=[FUNCTION, OWN], tool_choice=choice)
    assert (error.code, error.param) == (code, param)


def test_required_without_a_tool_is_refused() -> None:
    assert refusal(tool_choice="required").param == "tool_choice"
