"""The stage `redact_pii`: the model gets placeholders in place of personal data and secrets, and so may the client.

It works on the whole request, and on the answer as it streams. With `restore`, the client and its tools get the data
back where the model writes a placeholder.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.aio.cooperative import Work, run_cooperatively
from gateway.plugin import Exchange, Handler, Host, Plugin, Reply, replace
from gateway.plugin.message_filter import change_body, change_calls, screen_reply
from gateway.plugin.safe_regex import Patterns, compile_pattern
from gateway.plugin.stream_redactor import Screen, ScreenRule, screen_text

from .placeholders import PlaceholderRule, Placeholders, find_placeholders
from .rules import RULES, select_rules

_Name = Literal["api_key", "card", "email", "iban", "ip", "national_id", "phone"]
_PLACEHOLDER: Final = PlaceholderRule()


class Config(BaseModel):
    """The `with:` of `use: redact_pii`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["enforce", "shadow"] = Field(
        default="enforce", description="`shadow` changes nothing, and counts what it finds."
    )
    rules: tuple[_Name, ...] = Field(
        default=("api_key", "email", "iban", "national_id", "card", "ip", "phone"),
        description="Which data is looked for.",
    )
    patterns: Patterns = Field(default={}, description="Regular expressions of your own, by the names of their rules.")
    answers: bool = Field(default=True, description="Also look into what the model writes.")
    restore: bool = Field(
        default=False, description="Give the client and tools the data back where the model writes a placeholder."
    )

    @field_validator("patterns")
    @classmethod
    def _have_own_names(cls, patterns: Mapping[str, str]) -> Mapping[str, str]:
        for name in patterns:
            if name in RULES or name == _PLACEHOLDER.name:
                raise ValueError(f"{name!r} is the name of a rule that is there: choose another")
        return patterns


class RedactStage:
    """The stage. What belongs to one request is in its `Placeholders`."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._counters = host.counters
        own = [compile_pattern(name, pattern) for name, pattern in config.patterns.items()]
        self._rules: Sequence[ScreenRule] = [*own, *select_rules(config.rules)]

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        known = Placeholders(await run_cooperatively(_list_look_alikes(exchange)))
        if (
            exchange.execution.resume is not None
        ):  # its request has placeholders, and what they stand for is not on record
            return self._screen_answer(await call_next(exchange), known, {})
        found: Counter[str] = Counter()

        def act(rule: str, data: str) -> str:
            found[rule] += 1
            return known.assign_placeholder(rule, data)

        def change(text: str) -> Work[str]:
            return (yield from screen_text(text, self._rules, act))[0]

        body = await run_cooperatively(change_body(exchange.body, change))
        notes = tuple([await run_cooperatively(change(note)) for note in exchange.notes])
        if exchange.dry:
            told = ", ".join(f"{count} {rule}" for rule, count in sorted(found.items())) or "nothing"
            exchange = exchange.with_remarks(f"redact_pii: it found {told}")
        else:
            for rule, count in found.items():
                self._count_redactions(rule, count)
        if self._config.mode == "shadow":
            return self._screen_answer(await call_next(exchange), known, {})
        restored = dict(known.data) if self._config.restore else {}
        return self._screen_answer(await call_next(replace(exchange, body=body, notes=notes)), known, restored)

    def _screen_answer(self, reply: Reply, known: Placeholders, restored: Mapping[str, str]) -> Reply:
        """Return the reply without the data that the model writes, and with the data of its placeholders."""
        rules = [*((_PLACEHOLDER,) if restored else ()), *(self._rules if self._config.answers else ())]
        if not rules:
            return reply

        def act(rule: str, data: str) -> str:
            if rule == _PLACEHOLDER.name:
                return restored.get(data, data)
            self._count_redactions(rule, 1)
            return known.assign_placeholder(rule, data)

        def restore(text: str) -> Work[str]:
            return (yield from screen_text(text, (_PLACEHOLDER,), act))[0]

        def redact_text(text: str) -> Work[str]:
            return (yield from screen_text(text, rules, act))[0]

        return screen_reply(
            reply,
            lambda: Screen(rules, act),
            partial(change_calls, change=restore) if restored else None,
            over=redact_text,
            shadow=self._config.mode == "shadow",
        )

    def _count_redactions(self, rule: str, count: int) -> None:
        self._counters.count("guardrail_findings", count, stage="redact_pii", rule=rule, mode=self._config.mode)


def _list_look_alikes(exchange: Exchange) -> Work[set[str]]:
    """Return the texts of a request that look like placeholders."""
    found: set[str] = set()

    def collect_from_text(text: str) -> Work[str]:
        found.update((yield from find_placeholders(text)))
        return text

    yield from change_body(exchange.body, collect_from_text)
    for note in exchange.notes:
        yield from collect_from_text(note)
    return found


PLUGIN = Plugin(Config, RedactStage, guards_answers=True)
