"""What X-Context-Tools may name."""

import pytest

from gateway.errors import GatewayError
from gateway.lanes.narrowed import narrowed

KNOWN = ("read", "write", "time.now", "away.*")


@pytest.mark.parametrize("text", ["read", "read , write", "time.now", "time.*", "*", "away.whatever", "r?ad"])
def test_names_and_globs_that_fit_a_tool(text: str) -> None:
    """Also those of a service that does not run: nobody knows its tools now."""
    assert narrowed(text, KNOWN) == tuple(part.strip() for part in text.split(","))


@pytest.mark.parametrize("text", ["raed", "read,", "Read", "time.then", "other.*", "read write"])
def test_what_fits_none_is_refused(text: str) -> None:
    """With the names that there are."""
    with pytest.raises(GatewayError, match="there are: away") as caught:
        narrowed(text, KNOWN)
    assert (caught.value.code, caught.value.param) == ("invalid_header", "x-context-tools")
