"""What the tests of approvals share: a call with an effect that can be counted, and the words of its client."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from gateways import until_read

from .models import Answer, Json, call, says
from .talking import Completed, Streamed, World, desk
from .test_streams import is_clean

GO = "A dog is born: Di."


def ranch(folder: Path) -> Json:
    """Tools that may change the table of pets."""
    tools = desk(folder, write=True)
    tools["execute_sql"]["read_only"] = False
    return tools


def birth(name: str = "Di", *, risk_level: str | None = "high", terminate: bool = False) -> Json:
    """A call that must not run twice, of which the model itself says that a person must know."""
    sql = f"INSERT INTO pets VALUES ('{name}', 4)"
    return call("execute_sql", sql=sql, risk_level=risk_level, terminate=terminate)


def asks(*wanted: Json) -> Answer:
    """An answer that asks for these calls, of the pets of the ranch if nothing is said."""
    group = list(wanted) or [birth()]
    return says(json.dumps(group if len(group) > 1 else group[0]))


def born(folder: Path) -> list[str]:
    """The pets that were not there at first, once for each time that they were born."""
    with closing(sqlite3.connect(folder / "pets.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM pets ORDER BY rowid")]
    assert names[:3] == ["Ada", "Bo", "Cy"]
    return names[3:]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def line(*approvals: Json, verb: str = "approve") -> str:
    """The line that the gateway shows for these calls."""
    return " ".join([verb, *(f"{approval['id']} {approval['check_word']}" for approval in approvals)])


def answering(first: Completed, text: str, *, question: str = GO) -> list[Json]:
    """The conversation as a client sends it with its next message, the answer's own text in it."""
    return [user(question), first.message, user(text)]


#: The header of a client whose answers stay open until somebody has decided elsewhere.
HOLD = {"X-Context-Approvals": "hold"}
_QUESTION_END = re.compile(r"\A.*(?:: reason`\.|：原因`。)(?:\n\n)?", re.DOTALL)


def behind_question(text: str) -> str:
    """What a held answer says once it is decided; the question is its beginning."""
    assert text.count("gateway approvals approve ap_") == 1 and _QUESTION_END.match(text)
    return _QUESTION_END.sub("", text)


async def held(stream: Streamed) -> list[Json]:
    """Reads until the stream waits for a person; the approvals it waits for."""
    told = await stream.until_told("approval.required")
    approvals: list[Json] = told["approvals"]
    assert told["run_id"] == stream.response.headers["X-Context-Run-Id"]
    assert all(line(approval) in stream.text for approval in approvals)
    assert not any("reasoning_content" in delta for delta in stream.deltas)
    return approvals


async def whole(stream: Streamed, *, usage: bool = False) -> str:
    """The text of the stream when it is over, which was a clean one."""
    await stream.rest()
    is_clean(stream, usage=usage)
    assert stream.finishes == ["stop"]
    return stream.text


async def until_asked(world: World) -> list[str]:
    """The ids of what waits for a person, once there is something."""
    return await until_read(lambda: pending(world))


async def pending(world: World, **headers: str) -> list[str]:
    """The ids of what waits for a person."""
    page = await world.get("/context/approvals?status=pending", **headers)
    return [approval["id"] for approval in page.json["data"]]
