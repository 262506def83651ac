"""An upstream and its endpoints as they are named to people."""

import pytest

from gateway.model.upstream_client import ModelUpstream, Target
from gateway.testing.clock import ManualClock
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.pool import Pool
from tests.upstream.groups import group_of, member


def target(**facts: object) -> Target:
    given: dict[str, object] = {"name": "up", "host": "h", "port": 80, "authority": b"h.example", **facts}
    clock = ManualClock()
    pool = Pool(Endpoint(**given), clock=clock)  # type: ignore[arg-type]
    return Target(pool, group_of(Member(pool, name="a"), clock=clock))


@pytest.mark.parametrize(
    ("base_path", "url"),
    [(b"", "http://h.example/v1/models"), (b"/openai/v2", "http://h.example/openai/v2/models")],
)
def test_base_path_replaces_v1_in_upstream_urls(base_path: bytes, url: str) -> None:
    """In the path that is asked for, and in the URL that people see."""
    found = target(base_path=base_path)
    assert found.build_url(b"/models") == url and url.endswith(found.build_path(b"/models").decode())


def test_upstream_errors_name_the_upstream() -> None:
    """There may be many."""
    assert target().build_answer_error("it sang").message == "Upstream 'up' failed: it sang."


def test_upstream_has_key_only_if_the_gateway_configures_one() -> None:
    """The gateway's, or the client's."""
    clock = ManualClock()
    for key in (b"x", None):
        upstream = ModelUpstream(group_of(member("a", clock, api_key=key), clock=clock, name="one"), ("gpt-*",))
        assert (upstream.name, upstream.has_key) == ("one", key is not None)
