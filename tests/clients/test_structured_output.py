"""Clients that want an object get one of its shape, and a tool of the gateway's runs before it."""

from collections.abc import Iterator

import pytest

from tests.clients.lane import Lane
from tests.clients.person import asked_about, asking
from tests.clients.shaping import NODE, OBJECT, PYTHON, ShapingModel, shaped
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def model() -> Iterator[ShapingModel]:
    with ShapingModel() as model:
        yield model


@pytest.fixture(scope="module")
def lane(model: ShapingModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(model, tmp_path_factory.mktemp("shaping")) as lane:
        yield lane


@pytest.mark.cell("structured output")
@pytest.mark.parametrize("row", [*PYTHON, *NODE])
async def test_a_tool_runs_before_the_object(
    row: str, model: ShapingModel, lane: Lane, client_id: str, node: Worker
) -> None:
    """Once, and the last request to the model alone names the format."""
    model.formatted.clear()
    assert await shaped(row, lane.root, f"Note {client_id} at no risk, and the id.", worker=node) == OBJECT
    assert lane.count(client_id) == 1 and asked_about(lane, client_id) == []
    assert model.formatted == [False, False, True]
