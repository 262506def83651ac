"""Tokens of all model calls of a turn; what a model does not state is estimated (UTF-8 bytes / 4) and marked.

Details (cached and reasoning tokens, a price) are summed, whatever their names are.
"""

from collections.abc import Callable

import orjson

from gateway.contracts.storage.store import Json

_TOKENS = frozenset(("prompt_tokens", "completion_tokens", "total_tokens"))
#: No upstream counts so many; sums of more could not be written as JSON.
MOST = 1 << 53
#: Details are no deeper, such as `prompt_tokens_details.cached_tokens`.
_LEVELS = 2


class TurnUsage:
    """One turn's tokens. For each model call: `asked`, then `said` and `read` as it answers."""

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._estimated = False
        self._details: Json = {}
        self._told: Json | None = None
        self._model: str | None = None
        self._sent: Json = {}
        self._texts: list[str] = []
        self.said: Callable[[str], None] = self._texts.append  # each piece of text as it comes

    def begin_call(self, body: Json) -> None:
        """Add the last call to the sum, and begin to measure a call with this body."""
        self.settle()
        self._sent = body
        self._texts.clear()

    def read(self, chunk: Json) -> None:
        """Keep the usage and the model that a chunk states."""
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            # Some servers report their tokens so far with every chunk: the last report counts.
            self._told = usage
        if self._model is None and isinstance(model := chunk.get("model"), str) and model:
            self._model = model

    def build_chunk(self) -> Json:
        """Return the chunk with the tokens of all calls so far, marked if one is estimated."""
        self.settle()
        usage = {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
            **self._details,
        }
        estimated = {"context": {"usage_estimated": True}} if self._estimated else {}
        return {"choices": [], "usage": usage, **estimated}

    def take_snapshot(self) -> Json:
        """Return the tokens so far, for `restore`."""
        self.settle()
        told = {"prompt": self._prompt, "completion": self._completion, "details": self._details}
        return {**told, "estimated": self._estimated}

    def restore(self, snapshot: Json) -> None:
        self._prompt, self._completion = snapshot["prompt"], snapshot["completion"]
        self._estimated, self._details = snapshot["estimated"], snapshot.get("details", {})

    def get_reported_usage(self) -> tuple[str | None, int | None, int | None]:
        """Return model, prompt tokens and completion tokens of the last answer; None if not reported."""
        told = self._told or {}
        return self._model, _parse_count(told.get("prompt_tokens")), _parse_count(told.get("completion_tokens"))

    def settle(self) -> None:
        """Add the last call, estimated if the model reported none."""
        self._model = None
        if self._told is None and not self._sent:  # it is settled already
            return
        told, prompt, completion = self._told or {}, 0, 0
        if told:
            prompt, completion = (
                _get_token_count(told.get("prompt_tokens")),
                _get_token_count(told.get("completion_tokens")),
            )
            self._details = _sum_details(self._details, {k: v for k, v in told.items() if k not in _TOKENS})
        if not prompt and self._sent and not told.get("cached_answers"):  # no prompt has none: nothing was counted
            self._estimated = True
            prompt = -(-len(orjson.dumps(self._sent.get("messages"))) // 4)
            completion = completion or -(-len("".join(self._texts).encode(errors="replace")) // 4)
        self._prompt += prompt
        self._completion += completion
        self._told, self._sent = None, {}


def _sum_details(total: Json, told: Json, level: int = 0) -> Json:
    """Return the details of two calls as one: numbers are added, else the last value counts."""
    summed = dict(total)
    for key, value in told.items():
        known = total.get(key)
        if isinstance(value, dict):
            if level < _LEVELS:
                summed[key] = _sum_details(known if isinstance(known, dict) else {}, value, level + 1)
        elif _is_number(value):
            summed[key] = known + value if known is not None and _is_number(known) else value
        elif isinstance(value, str | bool):
            summed[key] = value
    return summed


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST


def _parse_count(tokens: object) -> int | None:
    """Return a number of tokens; None: it is not stated."""
    return _get_token_count(tokens) if _is_number(tokens) else None


def _get_token_count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 <= tokens < MOST else 0
