"""Sessions of people in a browser: signed cookies that name a gateway key, and the tokens of forms.

1. A cookie holds the name of a key and a fingerprint of it, never the key. The key is looked up at each request, so a
   key that is removed, replaced or narrowed takes its sessions with it.
2. The signature is HMAC with a secret of the store: every worker accepts the cookies of the others.
3. A form carries a token that is derived from its session. A page of another site cannot read it.
4. The id of a session stands in its cookie only: in no URL, no log line and no page.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from itsdangerous import BadData, URLSafeSerializer

SALT: Final = "twolane console session"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """One sign-in. `key` names the gateway key, `fingerprint` distinguishes it from another key of this name.

    `ends_s` stays what it was at the sign-in: the store forgets then that a person has signed out.
    """

    id: str
    key: str
    fingerprint: str
    begun_s: float  # Unix time, as `ends_s`
    ends_s: float


class Sessions:
    """The sessions of one store. `secret` signs them; `lifetime_s` and `now_s` are called each time."""

    def __init__(self, secret: bytes, *, lifetime_s: Callable[[], float], now_s: Callable[[], float]) -> None:
        self._secret = secret
        self._signer = URLSafeSerializer(secret, salt=SALT, signer_kwargs={"digest_method": hashlib.sha256})
        self._lifetime_s = lifetime_s
        self._now_s = now_s

    def begin(self, key: str, fingerprint: str) -> ConsoleSession:
        """Return a new session of the key."""
        now_s = self._now_s()
        session_id, ends_s = secrets.token_urlsafe(18), now_s + self._lifetime_s()
        return ConsoleSession(id=session_id, key=key, fingerprint=fingerprint, begun_s=now_s, ends_s=ends_s)

    def build_cookie(self, session: ConsoleSession) -> str:
        """Return the value of the session's cookie."""
        facts = [session.id, session.key, session.fingerprint, session.begun_s, session.ends_s]
        return str(self._signer.dumps(facts))

    def read(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie, or None: it is not ours, or its time is over."""
        if not cookie:  # the error about it would hold its own frames
            return None
        try:
            match self._signer.loads(cookie):
                case [
                    str(session_id),
                    str(key),
                    str(fingerprint),
                    int() | float() as begun_s,
                    int() | float() as ends_s,
                ]:
                    session = ConsoleSession(
                        id=session_id, key=key, fingerprint=fingerprint, begun_s=begun_s, ends_s=ends_s
                    )
                case _:
                    return None
        except BadData:
            return None
        return session if self.is_current(session) else None

    def is_current(self, session: ConsoleSession) -> bool:
        """Return whether the session's time is not over: a shorter lifetime holds for it too, a longer one does not."""
        return session.begun_s <= self._now_s() < min(session.ends_s, session.begun_s + self._lifetime_s())

    def build_form_token(self, session: ConsoleSession) -> str:
        """Return the token that the forms of the session carry."""
        return hmac.new(self._secret, f"form {session.id}".encode(), hashlib.sha256).hexdigest()

    def accepts(self, session: ConsoleSession, token: str) -> bool:
        """Return whether this is the token of the session's forms, in constant time."""
        return hmac.compare_digest(self.build_form_token(session).encode(), token.encode("utf-8", "surrogatepass"))
