"""An upstream as it is named to people."""

import pytest

from gateway.model.target import Target
from gateway.telemetry.metrics import UpstreamTally
from gateway.testing.clock import ManualClock
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool


def target(**facts: object) -> Target:
    given: dict[str, object] = {"name": "up", "host": "h", "port": 80, "authority": b"h.example", **facts}
    return Target(Pool(Endpoint(**given), clock=ManualClock()), (), UpstreamTally())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base_path", "url"),
    [(b"", "http://h.example/v1/models"), (b"/openai/v2", "http://h.example/openai/v2/models")],
)
def test_its_base_path_stands_where_v1_would(base_path: bytes, url: str) -> None:
    """In the path that is asked for, and in the URL that people see."""
    found = target(base_path=base_path)
    assert found.url(b"/models") == url and url.endswith(found.path(b"/models").decode())


def test_its_errors_have_its_name() -> None:
    """There may be many."""
    assert target().broken("it sang").message == "Upstream 'up' failed: it sang."


def test_whose_key_it_is() -> None:
    """The gateway's, or the client's."""
    assert target(api_key=b"x").has_key and not target().has_key
