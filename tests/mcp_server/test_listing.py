"""The tools that a request may use, and the tool that a name means."""

import pytest

from gateway.mcp_server.listing import Narrowing, Offer

ECHO = Offer("here.echo", "here__echo", "echo", "here", {})
NOTE = Offer("demo_note", "demo_note", "demo_note", None, {})


@pytest.mark.parametrize(
    ("narrowing", "echo", "note", "service"),
    [
        (Narrowing(), True, True, True),
        (Narrowing(((), ())), True, True, True),
        (Narrowing((("here.*",), ())), True, False, True),
        (Narrowing((("here.*",), ("here.echo",))), True, False, False),
        (Narrowing((("here.*",), ("there.*",))), False, False, False),
        (Narrowing((), "here"), True, False, True),
        (Narrowing((), "there"), False, False, False),
        (Narrowing((("*",),)), True, True, True),
        (Narrowing((("demo_note",),)), False, True, False),
    ],
)
def test_every_list_narrows(narrowing: Narrowing, echo: bool, note: bool, service: bool) -> None:
    """An empty one does not; a service as a whole needs all of its tools."""
    assert (narrowing.allows(ECHO), narrowing.allows(NOTE)) == (echo, note)
    assert narrowing.allows_service("here") == service


@pytest.mark.parametrize(
    ("patterns", "whole"),
    [
        (["here.*"], True),
        (["here*"], True),
        (["h*"], True),
        (["**"], True),
        (["*.*"], True),
        (["[gh]er?.*"], True),
        (["demo_note", "here.*"], True),
        (["here.?"], False),
        (["here.?*"], False),
        (["here.[*]"], False),
        (["here.[*"], False),
        (["here.e*"], False),
        (["here.*o"], False),
        (["*.?"], False),
        (["here.a*", "here.b*"], False),
        (["there.*"], False),
    ],
)
def test_a_service_is_allowed_with_all_names_of_tools(patterns: list[str], whole: bool) -> None:
    """Not with those that look like its glob."""
    assert Narrowing((patterns,)).allows_service("here") is whole
    assert Narrowing((["*"], patterns)).allows_service("here") is whole
