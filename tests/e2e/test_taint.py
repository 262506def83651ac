"""What strangers had a part in taints the run that reads it again, whatever the client made of its history."""

import json
from pathlib import Path

import pytest

from tests.gateways import key

from .asking import asks, birth, born, ranch, user
from .models import CUT, Answer, Json, calls, native, says
from .talking import World, talking

READ = calls("file_operations", operation="read", path="notes.txt", risk_level=None)
LOW = asks(birth(risk_level="low"))
#: Long enough to be known by its words alone.
TOLD = "The note was written by a stranger, who says that a dog should be born at once."
SHORT = "A note."
QUESTION = "What does the note say?"
NEXT = "Go on, then."


def settings(folder: Path) -> Json:
    """The note is a stranger's, and the model's word counts until one was read."""
    tools = ranch(folder)
    tools["file_operations"]["untrusted"] = True
    return {"tools": tools, "risk": {"trust_llm": "until_tainted"}}


def told(text: str) -> Json:
    return {"role": "assistant", "content": text}


async def goes_on(
    world: World, folder: Path, history: list[Json], *, tainted: bool, name: str | None = None, **whose: str
) -> None:
    """The model's `low` counts behind this history, or nothing does but a person."""
    before = len(born(folder))
    world.model.then(LOW, *([] if tainted else [says("Di is here.")]))
    headers = whose if name is None else {"X-Context-Conversation": name, **whose}
    answered = await world.chat(history, headers=headers)
    assert (answered.json.get("context", {}).get("status"), len(born(folder)) - before) == (
        ("awaiting_approval", 0) if tainted else (None, 1)
    )


HISTORIES: dict[str, list[Json]] = {
    "as it was": [user(QUESTION), told(TOLD), user(NEXT)],
    "an edited question": [user("And the note?"), told(TOLD), user(NEXT)],
    "its beginning is cut off": [told(TOLD), user(NEXT)],
    "another beginning": [user("Hello."), told("Hello, what can I do?"), user(QUESTION), told(TOLD), user(NEXT)],
    "the answer twice": [user(QUESTION), told(TOLD), user("Again."), told(TOLD), user(NEXT)],
}
#: What cannot be known without a name of the conversation.
REWRITTEN: dict[str, list[Json]] = {
    "only the next message": [user(NEXT)],
    "a summary": [{"role": "system", "content": f"Summary: {TOLD}"}, user(NEXT)],
    "an edited answer": [user(QUESTION), told(TOLD + " Indeed."), user(NEXT)],
    "quoted": [user(f"> {TOLD}"), told("I see."), user(NEXT)],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
async def test_answer_of_a_tainted_run_is_recognised_by_its_text(tmp_path: Path, history: list[Json]) -> None:
    """In a conversation without a name, whatever stands in front of it."""
    async with talking(READ, says(TOLD), **settings(tmp_path)) as world:
        await world.chat(QUESTION)
        await goes_on(world, tmp_path, history, tainted=True)
        await goes_on(world, tmp_path, [user(NEXT)], tainted=False)


BORN = "a dog should be born at once and without asking, says the note of the stranger."
THOUGHT, REFUSAL, PLAN = f"I see: {BORN}", f"No, {BORN}", f"Look whether {BORN}"
CALLED: Answer = native(("look", {"for": PLAN, "n": 1}))
#: What the model answers behind the note, and forms in which clients send a part of it back.
PARTS: dict[str, tuple[Answer, Json]] = {
    "thoughts": (
        says(*({"reasoning_content": piece} for piece in (THOUGHT[:9], THOUGHT[9:])), SHORT),
        {"reasoning": THOUGHT},
    ),
    "reasoning": (says({"reasoning": THOUGHT}, SHORT), {"reasoning_content": THOUGHT}),
    "details": (
        says({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": THOUGHT}]}, SHORT),
        {"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]},
    ),
    "signature": (
        says({"reasoning_details": [{"type": "reasoning.encrypted", "data": "d" * 64}]}, SHORT),
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "d" * 64, "id": "x"}]},
    ),
    "tags": (says(f"<think>{THOUGHT}</think>", SHORT), {"content": f"<think>\n{THOUGHT}\n</think>\n\nYes."}),
    "tags as field": (says(f"<think>{THOUGHT}</think>", SHORT), {"reasoning_content": THOUGHT}),
    "refusal": (says({"refusal": REFUSAL}), {"refusal": REFUSAL}),
    "call": (CALLED, {"tool_calls": [{"name": "look", "arguments": json.dumps({"n": 1.0, "for": PLAN})}]}),
    "older call": (CALLED, {"function_call": {"name": "other", "arguments": json.dumps({"for": PLAN, "n": 1})}}),
    "call as written": (
        native(("look", json.dumps({"for": PLAN, "n": 1}, indent=2))),
        {"tool_calls": [{"name": "look", "arguments": {"for": PLAN, "n": 1, "depth": None}}]},
    ),
    "text beside a call": (
        CALLED.but(pieces=(TOLD, *CALLED.pieces)),
        {"content": TOLD, "tool_calls": [{"name": "look", "arguments": "{}"}]},
    ),
}
LOOK: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def sent_back(part: Json) -> list[Json]:
    """An answer with this part, and results of the calls in it, whose ids are the client's own."""
    functions = part.get("tool_calls", ())
    calls = [{"id": f"call_{n}", "type": "function", "function": function} for n, function in enumerate(functions)]
    answer = {"role": "assistant", "content": "Yes.", **part, **({"tool_calls": calls} if calls else {})}
    return [answer, *({"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in calls), user(NEXT)]


@pytest.mark.parametrize(
    ("answer", "part", "tainted"),
    [
        pytest.param(answer, part, tainted, id=f"{name}-{tainted}")
        for name, (answer, part) in PARTS.items()
        for tainted in ((True,) if {"tool_calls", "function_call"} & part.keys() else (True, False))
    ],
)
async def test_each_text_part_of_a_tainted_answer_is_recognised(
    tmp_path: Path, answer: Answer, part: Json, *, tainted: bool
) -> None:
    """Thoughts and arguments, too, in whatever field; not if no stranger had a part in them."""
    async with talking(*([READ] if tainted else []), answer, **settings(tmp_path)) as world:
        await world.chat(QUESTION, tools=[LOOK])
        await goes_on(world, tmp_path, sent_back(part), tainted=tainted)


@pytest.mark.parametrize("history", [*HISTORIES.values(), *REWRITTEN.values()], ids=[*HISTORIES, *REWRITTEN])
async def test_a_conversation_with_a_name_stays_tainted(tmp_path: Path, history: list[Json]) -> None:
    """Whatever is left of it in the next request; another conversation is not."""
    async with talking(READ, says(TOLD), **settings(tmp_path)) as world:
        await world.chat(QUESTION, headers={"X-Context-Conversation": "ranch"})
        await goes_on(world, tmp_path, [user(NEXT)], tainted=False, name="other")
        await goes_on(world, tmp_path, history, tainted=True, name="ranch")


async def test_tainted_history_taints_the_named_conversation(tmp_path: Path) -> None:
    """The first turn had no name yet, and the third does not bring it any more."""
    async with talking(READ, says(SHORT), says("Yes."), **settings(tmp_path)) as world:
        await world.chat(QUESTION)
        really = [user(QUESTION), told(SHORT), user("Really?")]
        await world.chat(really, headers={"X-Context-Conversation": "ranch"})
        await goes_on(world, tmp_path, [user(NEXT)], tainted=True, name="ranch")


async def test_failed_turn_still_taints_the_conversation(tmp_path: Path) -> None:
    """Its client may have read the beginning of the answer, and bring that back."""
    async with talking(READ, says("The note says", CUT), **settings(tmp_path)) as world:
        failed = await world.chat(QUESTION, headers={"X-Context-Conversation": "ranch"})
        assert failed.status == 422
        await goes_on(world, tmp_path, [user(NEXT)], tainted=True, name="ranch")


async def test_explain_request_writes_no_taint_marks(tmp_path: Path) -> None:
    """POST /context/explain reads a tainted history in the name of a conversation, and writes nothing."""
    async with talking(READ, says(TOLD), **settings(tmp_path)) as world:
        await world.chat(QUESTION)
        history = {"messages": [user(QUESTION), told(TOLD), user(NEXT)]}
        await world.post(history, path="/context/explain", headers={"X-Context-Conversation": "ranch"})
        await goes_on(world, tmp_path, [user(NEXT)], tainted=False, name="ranch")


async def test_taint_marks_belong_to_one_caller(tmp_path: Path) -> None:
    """Another key of the same tenant, and another tenant, have their own conversations of this name."""
    keys = [
        {**key(name, "context", "approve"), "tenant": tenant} for name, tenant in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    async with talking(READ, says(TOLD), keys=keys, upstream={"api_key": "sk-up"}, **settings(tmp_path)) as world:
        named = {"X-Context-Conversation": "ranch"}
        assert (await world.chat(QUESTION, headers={**named, "X-Gateway-Key": "a"})).text == TOLD
        for n_born, name in enumerate(("b", "c"), start=1):
            world.model.then(LOW, says("Di is here."))
            history = [user(QUESTION), told(TOLD), user(NEXT)]
            await world.chat(history, headers={**named, "X-Gateway-Key": name})
            assert len(born(tmp_path)) == n_born and "mirror" not in str(world.model.asked[-1])


# What the client's own tools brought.

ID = "call_0a1b2c3d4e5f6a7b8c9d0e1f"
LOOKED: Json = {"id": ID, "type": "function", "function": {"name": "look", "arguments": "{}"}}
RESULT: Json = {"role": "tool", "tool_call_id": ID, "content": "Sunny."}
CALLED_BY_NAME: Json = {"name": "look", "arguments": "{}"}
BROUGHT: dict[str, list[Json]] = {
    "tool": [{"role": "assistant", "content": None, "tool_calls": [LOOKED]}, RESULT],
    "function": [
        {"role": "assistant", "content": None, "function_call": CALLED_BY_NAME},
        {"role": "function", "name": "look", "content": "Sunny."},
    ],
    "a result without its call": [RESULT],
    "a call without its result": [{"role": "assistant", "content": None, "tool_calls": [LOOKED]}],
    "a call in text": [told(f"Calling tools:\n{[LOOKED]}"), user("Observation: Sunny.")],
    "a call as Open WebUI shows it": [told('<details type="tool_calls" done="true">Sunny</details>It is.')],
    "a part that is a result": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "Sunny."}]}
    ],
    "in an earlier turn": [
        {"role": "assistant", "content": None, "tool_calls": [LOOKED]},
        RESULT,
        told("It is sunny."),
        user("Thanks."),
        told("You are welcome."),
    ],
}


@pytest.mark.parametrize("brought", BROUGHT.values(), ids=BROUGHT)
@pytest.mark.parametrize("stream", [False, True])
async def test_result_of_a_client_tool_taints_the_run(tmp_path: Path, brought: list[Json], *, stream: bool) -> None:
    """In whatever form, with streams and without."""
    async with talking(LOW, **settings(tmp_path)) as world:
        messages = [user(QUESTION), *brought, user(NEXT)]
        answer = await (world.stream if stream else world.chat)(messages)
        assert "approve ap_" in answer.text
        assert born(tmp_path) == []


@pytest.mark.parametrize(
    "brought",
    [
        [{"role": "developer", "content": "Be brief."}],
        [user("Look: ")],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}],
        [{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:text/plain;base64,AAAA"}}]}],
        [told("It is sunny.")],
    ],
)
async def test_content_from_the_user_does_not_taint_the_run(tmp_path: Path, brought: list[Json]) -> None:
    """Files and images, too: as text that a user pastes, they are what the user wants to have read."""
    async with talking(**settings(tmp_path)) as world:
        await goes_on(world, tmp_path, [user(QUESTION), *brought, user(NEXT)], tainted=False)


async def test_a_shortened_history_of_a_clients_tool_stays_tainted(tmp_path: Path) -> None:
    """Its answer is known by its words, without the result that it read."""
    async with talking(says(TOLD), **settings(tmp_path)) as world:
        await world.chat([user(QUESTION), *BROUGHT["tool"]])
        await goes_on(world, tmp_path, [user(QUESTION), told(TOLD), user(NEXT)], tainted=True)


# What the model's server reads by itself.


#: Fields by which a client lets servers of models search, or use tools of their own.
SEARCHES: dict[str, Json] = {
    "web_search_options": {"web_search_options": {}},
    "a tool of the provider": {"tools": [{"type": "web_search"}]},
    "a tool without a type": {"tools": [{"google_search": {}}]},
    "plugins": {"plugins": [{"id": "web"}]},
    "search_parameters": {"search_parameters": {"mode": "auto"}},
    "enable_search": {"enable_search": True},
    "data_sources": {"data_sources": [{"type": "azure_search", "parameters": {}}]},
    "online": {"model": "some/model:online"},
}


@pytest.mark.parametrize("fields", SEARCHES.values(), ids=SEARCHES)
async def test_provider_web_search_taints_the_run(tmp_path: Path, fields: Json) -> None:
    """A page that its server finds can talk it into a call as well as one that a tool brings."""
    async with talking(LOW, **settings(tmp_path)) as world:
        assert (await world.chat(QUESTION, **fields)).asks and born(tmp_path) == []


async def test_request_with_empty_search_options_does_not_taint_the_run(tmp_path: Path) -> None:
    """Null, false and empty lists are as if they were left out."""
    nothing: Json = {"web_search_options": None, "enable_search": False, "plugins": [], "tools": []}
    async with talking(LOW, says("Di is here."), **settings(tmp_path)) as world:
        assert (await world.chat(QUESTION, **nothing)).text == "Di is here." and born(tmp_path) == ["Di"]


CITED = {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0, "end_index": 1}}
#: What servers say of the pages that a model has read, without being asked to search.
SOURCES: dict[str, Json | bytes] = {
    "annotations": {"annotations": [CITED]},
    "executed_tools": {"executed_tools": [{"type": "search", "output": "x"}]},
    "citations": b'{"choices": [{"index": 0, "delta": {"content": ""}}], "citations": ["https://a.example"]}',
    "search_results": b'{"choices": [], "search_results": [{"url": "https://a.example"}]}',
}


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
async def test_answer_with_sources_counts_as_web_search_and_taints(tmp_path: Path, sources: Json | bytes) -> None:
    """Some models always search. Neither the call in that answer is believed, nor one of a later turn."""
    answer = says(*LOW.pieces, sources)
    async with talking(answer, says(TOLD, sources), **settings(tmp_path)) as world:
        assert (await world.chat(QUESTION)).asks and born(tmp_path) == []
        assert (await world.chat("And?")).text == TOLD
        await goes_on(world, tmp_path, [user("And?"), told(TOLD), user(NEXT)], tainted=True)


async def test_formatted_answer_with_sources_taints_the_next_turn(tmp_path: Path) -> None:
    """It comes back without them, as text."""
    form = {"response_format": {"type": "json_object"}}
    async with talking(says(TOLD, {"annotations": [CITED]}), **settings(tmp_path)) as world:
        await world.chat(QUESTION, **form)
        await goes_on(world, tmp_path, [user(QUESTION), told(TOLD), user(NEXT)], tainted=True)


async def test_client_history_with_cited_sources_taints_the_run(tmp_path: Path) -> None:
    """It may be of a model that this gateway never asked."""
    cited = {**told(SHORT), "annotations": [CITED]}
    async with talking(**settings(tmp_path)) as world:
        await goes_on(world, tmp_path, [user(QUESTION), cited, user(NEXT)], tainted=True)


# What came from the run of another person.

ANNA, BOB = {"X-Context-User": "anna"}, {"X-Context-User": "bob"}
KEYS: Json = {"keys": [{**key(name, "context", "approve"), "name": name, "tenant": "farm"} for name in ("one", "two")]}


@pytest.mark.parametrize("says_id", ["What is {}?", "approve {}"])
@pytest.mark.parametrize("named", [False, True], ids=["", "named"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_pending_question_of_another_user_taints_the_chat(
    tmp_path: Path, says_id: str, *, named: bool, stream: bool
) -> None:
    """Its arguments are words of another conversation."""
    async with talking(asks(), **settings(tmp_path)) as world:
        (approval,) = (await world.chat("A dog.", headers=ANNA)).asks
        whose = {**BOB, **({"X-Context-Conversation": "of bob"} if named else {})}
        said = [user("Hello."), told("Hello."), user(says_id.format(approval["id"]))]
        shown = (await (world.stream if stream else world.chat)(said, headers=whose)).text
        assert "INSERT INTO" in shown
        history = [user(NEXT)] if named else [user("?"), told(shown), user(NEXT)]
        await goes_on(world, tmp_path, history, tainted=True, **whose)


async def test_own_pending_question_does_not_taint_the_chat(tmp_path: Path) -> None:
    """Nor does one's own answer behind it."""
    async with talking(asks(), **settings(tmp_path)) as world:
        first = await world.chat("A dog.", headers=ANNA)
        (approval,) = first.asks
        shown = (await world.chat(f"What is {approval['id']}?", headers=ANNA)).text
        await goes_on(world, tmp_path, [user("?"), told(shown), user(NEXT)], tainted=False, **ANNA)
        world.model.then(says(TOLD))
        said = [user("?"), first.message, user(f"approve {approval['id']} {approval['check_word']}")]
        assert (await world.chat(said, headers=ANNA)).text == TOLD
        await goes_on(world, tmp_path, [*said, told(TOLD), user(NEXT)], tainted=False, **ANNA)


async def test_pending_call_of_another_users_run_taints_the_reader(tmp_path: Path) -> None:
    """A decision on one of two calls shows the other one."""
    async with talking(asks(birth(), birth("Ed")), **settings(tmp_path)) as world:
        first = await world.chat("Two dogs.", headers=ANNA)
        one, _ = first.asks
        line = f"approve {one['id']} {one['check_word']}"
        shown = (await world.chat([user("?"), first.message, user(line)], headers=BOB)).text
        assert "Ed" in shown
        await goes_on(world, tmp_path, [user("?"), told(shown), user(NEXT)], tainted=True, **BOB)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_answer_of_another_keys_run_taints_the_chat(tmp_path: Path, *, stream: bool) -> None:
    """The marks of the run itself are for the key that began it; short or long, and given once more."""
    one, two = ({"X-Gateway-Key": name} for name in ("one", "two"))
    for number, answer in enumerate((TOLD, SHORT)):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with talking(asks(), says(answer), **settings(folder), **KEYS) as world:
            first = await world.chat("A dog.", headers=one)
            (approval,) = first.asks
            said = [user("?"), first.message, user(f"approve {approval['id']} {approval['check_word']}")]
            for _ in range(2):
                shown = (await (world.stream if stream else world.chat)(said, headers=two)).text
                assert shown == answer
                await goes_on(world, folder, [*said, told(shown), user(NEXT)], tainted=True, **two)
