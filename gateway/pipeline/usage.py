"""Tokens of all model calls of a turn; what a model does not say is estimated (UTF-8 bytes / 4) and marked."""

from collections.abc import Callable

import orjson

from gateway.contracts import Json


class Usage:
    """One turn's tokens. For each model call: `asked`, then `said` and `read` as it answers."""

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._estimated = False
        self._told: tuple[int, int] | None = None
        self._sent: Json = {}
        self._texts: list[str] = []
        self.said: Callable[[str], None] = self._texts.append  # each piece of text as it comes

    def asked(self, body: Json) -> None:
        self._settle()
        self._sent = body
        self._texts.clear()

    def read(self, chunk: Json) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            # Some tell their tokens so far with every chunk: the last word counts.
            self._told = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))

    def chunk(self) -> Json:
        self._settle()
        usage = {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
        }
        estimated = {"context": {"usage_estimated": True}} if self._estimated else {}
        return {"choices": [], "usage": usage, **estimated}

    def snapshot(self) -> Json:
        """The tokens so far, for `restore`."""
        self._settle()
        return {"prompt": self._prompt, "completion": self._completion, "estimated": self._estimated}

    def restore(self, snapshot: Json) -> None:
        self._prompt, self._completion = snapshot["prompt"], snapshot["completion"]
        self._estimated = snapshot["estimated"]

    def _settle(self) -> None:
        """Adds the last call, estimated if the model said nothing about it."""
        if self._told is not None:
            prompt, completion = self._told
        elif self._sent:
            self._estimated = True
            prompt, completion = (
                -(-len(orjson.dumps(self._sent.get("messages"))) // 4),
                -(-len("".join(self._texts).encode(errors="replace")) // 4),
            )
        else:
            return
        self._prompt += prompt
        self._completion += completion
        self._told, self._sent = None, {}


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and tokens >= 0 else 0
