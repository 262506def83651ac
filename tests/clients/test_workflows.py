"""The shipped workflows as openai-python starts them: a message that begins with `/name`, streamed or not."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.clients.conftest import running
from tests.clients.lane import shop

pytestmark = pytest.mark.clients

SHIPPED = Path(__file__).parents[2] / "workflows"
ROWS = "/table-report title=Fruit SELECT name, price FROM fruit ORDER BY price"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[openai.OpenAI]:
    """Of a gateway with the demo model, a database and the examples."""
    flows = database.parent / "flows"
    flows.mkdir(mode=0o700)
    for file in SHIPPED.glob("*.yaml"):
        shutil.copyfile(file, flows / file.name)
        (flows / file.name).chmod(0o600)
    tool = {"url": f"sqlite:///{database}", "read_only": False}
    config = {"tools": {"execute_sql": tool}, "workflows": {"folder": str(flows)}, "store": "sqlite:///:memory:"}
    with (
        running(json.dumps(config)) as gateway,
        openai.OpenAI(base_url=f"{gateway.base_url}/context/v1", api_key="unused", max_retries=0) as client,
    ):
        yield client


def ask(client: openai.OpenAI, *messages: ChatCompletionMessageParam | str, stream: bool = False) -> str:
    said: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": message} if isinstance(message, str) else message for message in messages
    ]
    if stream:
        chunks = client.chat.completions.create(model="demo", messages=said, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return client.chat.completions.create(model="demo", messages=said).choices[0].message.content or ""


@pytest.mark.parametrize("stream", [False, True])
def test_summary_workflow_answers_with_a_summary(client: openai.OpenAI, *, stream: bool) -> None:
    """It needs no tool; the demo model says the first sentence."""
    text = "/summarise title=Notes The safe is behind the mirror. Nobody knows."
    assert ask(client, text, stream=stream) == "**Notes**: The safe is behind the mirror."


@pytest.mark.parametrize("stream", [False, True])
def test_report_workflow_answers_with_a_table_page(client: openai.OpenAI, *, stream: bool) -> None:
    """A query, what the model says about its rows, and one page of both."""
    page = ask(client, ROWS, stream=stream)
    assert page.startswith("# Fruit\n\n2 rows of name, price; the first: apple, 3.\n")
    assert '[["apple",3],["fig",7]]' in page and "Query: `SELECT name, price FROM fruit ORDER BY price`" in page


def test_report_workflow_with_a_write_waits_for_approval(client: openai.OpenAI, database: Path) -> None:
    """It waits for a person, who answers in the same conversation; then there is the page."""
    insertion = "/table-report title=Log INSERT INTO log VALUES ('x', 1)"
    shown = ask(client, insertion)
    approve = next(line for line in shown.splitlines() if line.startswith("approve ap_"))
    page = ask(client, insertion, {"role": "assistant", "content": shown}, approve)
    assert page.startswith("# Log\n\n1 row changed.")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT * FROM log").fetchall() == [("x", 1)]


def test_invalid_workflow_parameters_raise_a_client_error(client: openai.OpenAI) -> None:
    """As the SDK tells one: with the parameter, and not repeated by it."""
    with pytest.raises(openai.UnprocessableEntityError) as error:
        ask(client, "/summarise language=German")
    assert (error.value.code, error.value.param) == ("invalid_parameters", "text")
    with pytest.raises(openai.UnprocessableEntityError, match="'rows'"):
        ask(client, "/table-report SELECT * FROM cats")
