"""The requests that bring answers to questions in the older era: who answers, not only what.

There an answer is a separate message in the session of the call, and the SDK passes on nothing but its content. So each
one is marked on its way to the SDK with a unique word, by which the request that brought it is found again. An answer
without a mark, or with one that its client wrote, has no known sender, and decides nothing.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_types import ElicitResult

from gateway.http.request_head import RequestHead

_MARK: Final = "twolane/answer"
#: So many answers of a session are known at a time: the latest ones.
_MOST: Final = 100


@dataclass(slots=True, eq=False)
class _Session:
    questions: int = 0
    heads: dict[str, RequestHead] = field(default_factory=dict)


class ElicitationAnswers:
    """The answers on their way in the sessions of one worker that have open questions."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    @contextmanager
    def expect_answer(self, session_id: str) -> Iterator[None]:
        """Expect an answer in this session: a question is open inside."""
        session = self._sessions.setdefault(session_id, _Session())
        session.questions += 1
        try:
            yield
        finally:
            session.questions -= 1
            if not session.questions:
                del self._sessions[session_id]

    def mark(self, session_id: str | None, head: RequestHead, message: object) -> None:
        """Tag a message that may be an expected answer with its request."""
        session = None if session_id is None else self._sessions.get(session_id)
        result = message.get("result") if isinstance(message, dict) else None
        if session is None or not isinstance(result, dict):
            return
        mark, meta = secrets.token_urlsafe(), result.get("_meta")
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), _MARK: mark}
        session.heads[mark] = head
        if len(session.heads) > _MOST:
            del session.heads[next(iter(session.heads))]

    def find_sender(self, session_id: str, answer: ElicitResult) -> RequestHead | None:
        """Return the head of the request that brought an answer; None: it is unknown."""
        session, mark = self._sessions.get(session_id), (answer.meta or {}).get(_MARK)
        return session.heads.get(mark) if session is not None and isinstance(mark, str) else None
