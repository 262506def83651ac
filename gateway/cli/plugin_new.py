"""`gateway plugin new`: a working plugin and its test, to start from."""

import keyword
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.registry.find import plugin_names
from gateway.registry.folder import file_of

NewKind = Literal["stages", "tools", "assessors"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


class PluginNewError(Exception):
    """Nothing was written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Template:
    """Two files and the lines of gateway.yaml that use them; `NAME` is the plugin's name, `FOLDER` that of its home."""

    plugin: str
    test: str
    use: str


def write_and_tell(kind: NewKind, name: str, *, folder: Path) -> int:
    """Write both files and print what to do with them; 1 with the reason on standard error if that failed."""
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as a person here would write it
    try:
        plugin, test = write_plugin(kind, name, folder=folder)
    except PluginNewError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    print(f"wrote {plugin}\nwrote {test}\n\nTry it: python -m pytest {test}\nIn gateway.yaml:\n")
    print(rendered(TEMPLATES[kind].use, name), end="")
    return 0


def write_plugin(kind: NewKind, name: str, *, folder: Path) -> tuple[Path, Path]:
    """Write the plugin into `folder`, its test into `tests` beside it, over nothing that is there.

    Nobody but the owner may write them, whatever the umask: others would not be imported. Raises PluginNewError.
    """
    _check_name(kind, name)
    template = TEMPLATES[kind]
    plugin = file_of(folder, kind, name)
    test = folder.parent / "tests" / folder.name / kind / f"test_{name}.py"
    try:
        for file in (plugin, test):
            if os.path.lexists(file):
                raise PluginNewError(f"{str(file)!r} is there already: choose another name, or move it away")
        for file, text in ((plugin, template.plugin), (test, template.test)):
            for missing in reversed([place for place in file.parents if not place.exists()]):
                missing.mkdir(mode=0o755)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as opened:
                opened.write(rendered(text, name, folder=folder.name))
    except OSError as error:
        raise PluginNewError(f"cannot write {error.filename!r}: {error.strerror}") from None
    return plugin, test


def rendered(text: str, name: str, *, folder: str = "plugins") -> str:
    """Return the text of a template for the plugin `name` in a folder of that name."""
    return text.replace("NAME", name).replace("FOLDER", folder)


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

from gateway.plugin import Exchange, Handler, Host, Plugin, Reply, Stage


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
from pathlib import Path

from gateway.plugin import Caller, Emit, Exchange, Json, Reply, Stage
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"


async def silence(emit: Emit) -> None:
    """The answer is of no concern here."""


async def nothing_to_release() -> None:
    """A reply of a test holds nothing."""


def test_the_note_comes_last() -> None:
    """Behind the notes of stages above it; the reply of the next stage is the answer."""
    reply = Reply(silence, nothing_to_release)
    seen: list[Exchange] = []

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return reply

    caller = Caller("tester", "local", frozenset({"context"}))
    body: Json = {"messages": [{"role": "user", "content": "Hello?"}]}
    exchange = Exchange(id="run_1", body=body, caller=caller, chain="assistant", notes=("first",))

    async def call(stage: Stage) -> Reply:
        return await stage(exchange, call_next)

    config = {"note": "second"}
    stage: Stage = build_plugin("stages", "NAME", config, None, folder=HOME)
    assert asyncio.run(call(stage)) is reply
    assert (seen[0].notes, seen[0].body) == (("first", "second"), body)
''',
    use="""\
chains:
  assistant:
    - use: NAME
      with: {note: Answer in French.}
    - use: intent
    - use: memory
    - use: prompt_enhancer
    - use: agent_loop
""",
)

_TOOL = Template(
    plugin='''\
"""The tool `NAME`: counts the words of a text."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Exchange, Host, Plugin, ToolCall, ToolResult, ToolSource, ToolSpec


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

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        """What nobody needs to be asked about; None: the gate decides."""
        del exchange  # the answer is the same for everybody; the arguments fit the schema
        if len(call.arguments["text"]) > self._config.max_chars:
            return f"The text is longer than {self._config.max_chars} characters."
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        if refusal := await self.refusal(call, exchange):
            return ToolResult(refusal, ok=False)
        return ToolResult(str(len(call.arguments["text"].split())))

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
from pathlib import Path

from gateway.plugin import Caller, Exchange, ToolCall, ToolResult, ToolSource
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"
EXCHANGE = Exchange(
    id="run_1", body={"messages": []}, caller=Caller("tester", "local", frozenset({"context"})), chain="assistant"
)


def tool(**config: object) -> ToolSource:
    source: ToolSource = build_plugin("tools", "NAME", config, None, folder=HOME)
    return source


def call(text: str) -> ToolCall:
    return ToolCall(id="call_1", tool="NAME", arguments={"text": text})


def test_words_are_counted() -> None:
    """However they are separated; nothing speaks against asking."""
    asked = call("one two\\n three")
    assert asyncio.run(tool().refusal(asked, EXCHANGE)) is None
    assert asyncio.run(tool().call(asked, EXCHANGE)) == ToolResult("3")


def test_a_text_that_is_too_long_is_refused() -> None:
    """With the limit, so that the model can do better; before anybody is asked."""
    text = "The text is longer than 4 characters."
    assert asyncio.run(tool(max_chars=4).refusal(call("a b c"), EXCHANGE)) == text
    assert asyncio.run(tool(max_chars=4).call(call("a b c"), EXCHANGE)) == ToolResult(text, ok=False)


def test_the_tool_has_the_name_of_its_file() -> None:
    """By which models call it and operators configure it."""
    (spec,) = asyncio.run(tool().list_tools())
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

from gateway.plugin import Host, Json, Plugin, RiskAssessor, Verdict


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

from pathlib import Path

import pytest

from gateway.plugin import Json
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"


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
    config = {"max_chars": 3}
    assessor = build_plugin("assessors", "NAME", config, None, folder=HOME)
    assert assessor.assess(arguments).decision == decision
''',
    use="""\
risk:
  assessors:
    docs.search:
      use: NAME
      with: {max_chars: 100}
""",
)

TEMPLATES: Mapping[NewKind, Template] = {"stages": _STAGE, "tools": _TOOL, "assessors": _ASSESSOR}
