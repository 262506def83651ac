"""`gateway plugin new`: a working plugin and its test, to start from."""

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.registry import PACKAGE, plugin_names

NewKind = Literal["stages", "tools", "assessors"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


class PluginNewError(Exception):
    """Nothing was written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Template:
    """Two files and the lines of gateway.yaml that use them; `NAME` stands for the plugin's name."""

    plugin: str
    test: str
    use: str


def write_and_tell(kind: NewKind, name: str, *, folder: Path) -> int:
    """Writes both files and says what to do with them; 1 with the reason on standard error if that failed."""
    try:
        plugin, test = write_plugin(kind, name, folder=folder)
    except PluginNewError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    print(f"wrote {plugin}\nwrote {test}\n\nTry it: python -m pytest {test}\nIn gateway.yaml:\n")
    print(rendered(TEMPLATES[kind].use, name), end="")
    home = _home(kind)
    if home.resolve() != plugin.parent.resolve():
        print(f"\nThis gateway looks for its plugins in {home}: move the file there.")
    return 0


def write_plugin(kind: NewKind, name: str, *, folder: Path) -> tuple[Path, Path]:
    """Writes the plugin and its test beneath `folder`, over nothing that is there. Raises PluginNewError."""
    _check_name(kind, name)
    template = TEMPLATES[kind]
    plugin = folder / PACKAGE / kind / f"{name}.py"
    test = folder / "tests" / PACKAGE / kind / f"test_{name}.py"
    try:
        for file in (plugin, test):
            if file.exists() or file.is_symlink():
                raise PluginNewError(f"{str(file)!r} is there already: choose another name, or move it away")
        for file, text in ((plugin, template.plugin), (test, template.test)):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(rendered(text, name))
    except OSError as error:
        raise PluginNewError(f"cannot write {error.filename!r}: {error.strerror}") from None
    return plugin, test


def rendered(text: str, name: str) -> str:
    """The text of a template for the plugin `name`."""
    return text.replace("NAME", name)


def _home(kind: NewKind) -> Path:
    """Where the plugins of this gateway stand."""
    return Path(__file__).parent.parent / PACKAGE / kind


def _check_name(kind: NewKind, name: str) -> None:
    if not _NAME.match(name) or keyword.iskeyword(name):
        raise PluginNewError(
            f"{name!r} cannot be a plugin's name: write up to 40 of a-z, 0-9 and '_', beginning with a letter"
        )
    if name in plugin_names(kind):
        raise PluginNewError(f"there is a plugin {name!r} of kind {kind!r} already: choose another name")


_STAGE = Template(
    plugin='''\
"""The stage `NAME`: tells the model something besides, with every request."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Exchange, Handler, Host, Plugin, Reply, Stage


class Config(BaseModel):
    """The `with:` of `use: NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    note: str = Field(default="Answer in one sentence.", description="What the model is told.")


class NoteStage:
    """Adds `note` to the notes of a request, which a prompt_enhancer below it renders."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(replace(exchange, notes=(*exchange.notes, self._config.note)))


def build(config: Config, host: Host) -> Stage:
    del host  # it has tools, prompts, the store, counters and a clock for stages that need them
    return NoteStage(config)


PLUGIN = Plugin(Config, build)
''',
    test='''\
"""The stage `NAME`: what it adds to a request."""

import asyncio
from collections.abc import AsyncIterator

from gateway.contracts import Caller, Exchange, Json, Reply
from plugins.stages.NAME import Config, NoteStage


async def chunks() -> AsyncIterator[Json]:
    yield {"choices": []}


async def nothing_to_release() -> None:
    """A reply of a test holds nothing."""


def test_the_note_comes_last() -> None:
    """Behind the notes of stages above it; the reply of the next stage is the answer."""
    reply = Reply(chunks(), nothing_to_release)
    seen: list[Exchange] = []

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return reply

    caller = Caller("tester", "local", frozenset({"context"}))
    body: Json = {"messages": [{"role": "user", "content": "Hello?"}]}
    exchange = Exchange(id="run_1", body=body, caller=caller, chain="assistant", notes=("first",))
    assert asyncio.run(NoteStage(Config(note="second"))(exchange, call_next)) is reply
    assert (seen[0].notes, seen[0].body) == (("first", "second"), body)
''',
    use="""\
chains:
  assistant:
    - use: NAME
      with: {note: Answer in French.}
    - use: prompt_enhancer
    - use: agent_loop
""",
)

_TOOL = Template(
    plugin='''\
"""The tool `NAME`: counts the words of a text."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Exchange, Host, Plugin, ToolCall, ToolResult, ToolSource, ToolSpec


class Config(BaseModel):
    """The `with:` of `tools: {NAME: {with: ...}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=10_000, ge=1, description="Longest text that is counted.")


_SPEC = ToolSpec(
    name="NAME",
    description="Says how many words a text has.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The text."}},
        "required": ["text"],
        "additionalProperties": False,
    },
    category="text",
    idempotent=True,
)


class WordCount:
    """The source of this one tool. A failure is a result, too: the model reads it and goes on."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_SPEC,)

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        del exchange  # the answer is the same for everybody; the arguments fit the schema
        text = call.arguments["text"]
        if len(text) > self._config.max_chars:
            return ToolResult(f"The text is longer than {self._config.max_chars} characters.", ok=False)
        return ToolResult(str(len(text.split())))

    async def close(self) -> None:
        """Holds nothing open."""


def build(config: Config, host: Host) -> ToolSource:
    del host  # it has the store, counters and a clock for tools that need them
    return WordCount(config)


PLUGIN = Plugin(Config, build)
''',
    test='''\
"""The tool `NAME`: what it answers."""

import asyncio

from gateway.contracts import Caller, Exchange, ToolCall, ToolResult
from plugins.tools.NAME import Config, WordCount


def answer(text: str, config: Config) -> ToolResult:
    caller = Caller("tester", "local", frozenset({"context"}))
    exchange = Exchange(id="run_1", body={"messages": []}, caller=caller, chain="assistant")
    call = ToolCall(id="call_1", tool="NAME", arguments={"text": text})
    return asyncio.run(WordCount(config).call(call, exchange))


def test_words_are_counted() -> None:
    """However they are separated."""
    assert answer("one two\\n three", Config()) == ToolResult("3")


def test_a_text_that_is_too_long_is_refused() -> None:
    """With the limit, so that the model can do better."""
    assert answer("a b c", Config(max_chars=4)) == ToolResult("The text is longer than 4 characters.", ok=False)


def test_the_tool_has_the_name_of_its_file() -> None:
    """By which models call it and operators configure it."""
    (spec,) = asyncio.run(WordCount(Config()).list_tools())
    assert spec.name == "NAME"
''',
    use="""\
tools:
  NAME:
    requires_approval: false
    with: {max_chars: 5000}
""",
)

_ASSESSOR = Template(
    plugin='''\
"""The assessor `NAME`: calls whose texts are all short are known to be harmless."""

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Host, Json, Plugin, RiskAssessor, Verdict


class Config(BaseModel):
    """The `with:` of `use: NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=200, ge=0, description="Longest text that is harmless.")


class ShortTexts:
    """Says auto only for what is known to be harmless; everything else is confirm, and a person is asked."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def assess(self, arguments: Json) -> Verdict:
        for name, value in arguments.items():
            if not isinstance(value, str) or len(value) > self._config.max_chars:
                return Verdict("confirm", "default", "no_short_text", f"{name!r} is no short text.")
        return Verdict("auto", "whitelist", "short_texts", "All its texts are short.")


def build(config: Config, host: Host) -> RiskAssessor:
    del host  # an assessor judges the arguments alone
    return ShortTexts(config)


PLUGIN = Plugin(Config, build)
''',
    test='''\
"""The assessor `NAME`: what runs by itself and what does not."""

import pytest

from gateway.contracts import Json
from plugins.assessors.NAME import Config, ShortTexts


@pytest.mark.parametrize(
    ("arguments", "decision"),
    [
        ({}, "auto"),
        ({"text": "abc"}, "auto"),
        ({"text": "abcd"}, "confirm"),
        ({"text": "a", "more": "abcd"}, "confirm"),
        ({"text": None}, "confirm"),
        ({"text": ["a"]}, "confirm"),
    ],
)
def test_only_short_texts_run_by_themselves(arguments: Json, decision: str) -> None:
    """Whatever is not known asks a person."""
    assert ShortTexts(Config(max_chars=3)).assess(arguments).decision == decision
''',
    use="""\
risk:
  assessors:
    my_tool:
      use: NAME
      with: {max_chars: 100}
""",
)

TEMPLATES: Mapping[NewKind, Template] = {"stages": _STAGE, "tools": _TOOL, "assessors": _ASSESSOR}
