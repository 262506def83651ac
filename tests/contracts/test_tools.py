"""The names of tools towards models."""

import re

import pytest

from gateway.contracts.tools import Previewer, encode_model_name


@pytest.mark.parametrize("name", ["地图.查询", "a" * 40 + "." + "b" * 40, "a b.c", "s.\ud800", ""])
def test_model_name_is_valid_and_unique_for_every_tool_name(name: str) -> None:
    """At most 64 letters, digits, `_` and `-`, ending in 8 digits of its own."""
    written = encode_model_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", written)
    assert re.search(r"_[0-9a-f]{8}\Z", written)
    assert written != encode_model_name(name + "地")


def test_plain_tool_name_keeps_its_model_name() -> None:
    """`service__tool`."""
    assert encode_model_name("git.git_log") == "git__git_log"


def test_previewer_requires_a_preview_method() -> None:
    """A preview that a tool does not offer is no part of its contract."""

    class Plain:
        async def list_tools(self) -> None: ...
        async def refusal(self) -> None: ...
        async def call(self) -> None: ...
        async def close(self) -> None: ...

    class Showing(Plain):
        async def preview(self) -> None: ...

    assert isinstance(Showing(), Previewer) and not isinstance(Plain(), Previewer)
