"""Values of a workflow in a URL: data in their place, and nothing beside it."""

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.templates import split_pieces
from gateway.plugins.tools.http_request.workflow_url import build_url

TEMPLATE = "https://{{params.host}}.example.com/items/{{params.id}}/of?name={{params.name}}&kind=plain"


def url(template: str, **params: object) -> str:
    return build_url(split_pieces(template, {"params": params}))


@given(name=st.text(st.characters(exclude_categories=["Cs"])), item=st.text("ab/.?#;&=@:%\\ ä", min_size=1))
def test_workflow_value_adds_no_part_to_the_url(name: str, item: str) -> None:
    """No further segment, parameter or fragment, whatever the value holds."""
    if not item.strip("."):
        item += "a"
    parts = urlsplit(url(TEMPLATE, host="shop", id=item, name=name))
    assert (parts.hostname, parts.fragment, parts.username) == ("shop.example.com", "", None)
    assert [unquote(segment) for segment in parts.path.split("/")] == ["", "items", item, "of"]
    assert parse_qs(parts.query, keep_blank_values=True, strict_parsing=True) == {"name": [name], "kind": ["plain"]}


@pytest.mark.parametrize(
    "host", ["evil.com/", "evil.com#", "me@evil", "evil:80", "evil.com?", "a b", "\\evil", "evil%2f"]
)
def test_workflow_value_for_a_host_rejects_url_delimiters(host: str) -> None:
    """Anything else would end the host, or name a user."""
    with pytest.raises(ValueError, match=r"\{\{params\.host\}\}"):
        url(TEMPLATE, host=host, id="1", name="x")


@pytest.mark.parametrize("dots", [".", ".."])
def test_workflow_value_of_dot_segments_is_refused_in_the_path(dots: str) -> None:
    """Clients remove dot segments (RFC 3986, section 5.2.4); in a query dots are dots."""
    with pytest.raises(ValueError, match=r"\{\{params\.id\}\}"):
        url(TEMPLATE, host="shop", id=dots, name="x")
    assert url("https://a/?{{params.id}}", id=dots) == f"https://a/?{dots}"


def test_workflow_reference_as_url_scheme_is_refused() -> None:
    """The reason names the reference."""
    with pytest.raises(ValueError, match=r"\{\{params\.s\}\}"):
        url("{{params.s}}://a/", s="http")
