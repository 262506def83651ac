"""Clients that want an object get one of its shape, and a tool of the gateway's runs before it."""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.lane import Lane
from tests.clients.person import asked_about, asking
from tests.clients.shaping import APART, OBJECT, OF_MESSAGES, OF_MESSAGES_APART, PYTHON, ShapingModel, shaped
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


#: LiteLLM among them, where the larger tier is asked for.
ROWS = [pytest.param(row, marks=[pytest.mark.clients_all] if row == "LiteLLM" else []) for row in (*PYTHON, *APART)]
Workers = Callable[[str], Worker]


@pytest.mark.cell("structured output")
@pytest.mark.parametrize("row", ROWS)
async def test_gateway_tool_runs_before_the_structured_output(
    row: str, model: ShapingModel, lane: Lane, client_id: str, workers: Workers
) -> None:
    """Once, and the last request to the model alone names the format."""
    model.formatted.clear()
    assert await shaped(row, lane.root, f"Note {client_id} at no risk, and the id.", worker=workers) == OBJECT
    assert lane.count(client_id) == 1 and asked_about(lane, client_id) == []
    assert model.formatted == [False, False, True]


@pytest.mark.cell("structured output")
@pytest.mark.parametrize("row", [*OF_MESSAGES, *OF_MESSAGES_APART])
async def test_messages_output_format_passes_through(
    row: str, model: ShapingModel, lane: Lane, workers: Workers
) -> None:
    """To the model, which answers with the object."""
    model.formatted.clear()
    assert await shaped(row, lane.root.removesuffix("/context"), "The id?", worker=workers) == OBJECT
    assert model.formatted == [True]
