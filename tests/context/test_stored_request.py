"""The parts of a request that go on with a stored run: nothing of another person's, no other credential."""

import pytest

from gateway.context.stored_request import may_read_answer, select_header_lines
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Origin
from gateway.runs.request_snapshot import build_run_record

HEADER, CREDENTIAL = b"X-Who: eve\r\n", b"Authorization: Bearer of-eve\r\n"


def asked(
    name: str = "app", *, tenant: str = "farm", user: str | None = None, model: str = "m", talk: str | None = None
) -> Exchange:
    """A request of this key, with header lines and a credential of its own."""
    return Exchange(
        id="run_1",
        body={"model": model, "messages": [{"role": "user", "content": "Hi"}]},
        caller=Caller(name, tenant, frozenset(("context", "approve"))),
        chain="main",
        user=user,
        conversation=talk,
        origin=Origin(header=HEADER, credential=CREDENTIAL),
    )


@pytest.mark.parametrize(
    ("own", "began", "expected"),
    [
        (asked(), asked(), (HEADER, CREDENTIAL)),
        (asked(user="eve"), asked(user="eve"), (HEADER, CREDENTIAL)),
        (asked("ben"), asked(), (b"", b"")),
        (asked(tenant="zoo"), asked(), (b"", b"")),
        (asked(user="zoe"), asked(user="eve"), (b"", b"")),
        (asked(), asked(user="eve"), (b"", b"")),
        (asked(user="eve"), asked(), (b"", b"")),
        (asked(talk="eves"), asked(talk="eves"), (HEADER, CREDENTIAL)),
        (asked(talk="zoes"), asked(talk="eves"), (b"", b"")),
        (asked(), asked(talk="eves"), (b"", b"")),
        (asked(talk="zoes"), asked(), (b"", b"")),
        (asked(user="eve", talk="a"), asked(user="eve", talk="b"), (HEADER, CREDENTIAL)),
        (asked(model="o"), asked(), (HEADER, b"")),
    ],
)
def test_run_receives_only_the_headers_of_its_own_client(
    own: Exchange, began: Exchange, expected: tuple[bytes, bytes]
) -> None:
    """By key and end user, else by conversation; the credential only for the upstream that is asked first for both."""
    found = select_header_lines(own, build_run_record(began, now_s=1.0), upstream_of=lambda one: one.body["model"])
    assert found == expected


@pytest.mark.parametrize(
    ("own", "began", "expected"),
    [
        (asked(), asked(), True),
        (asked(user="eve"), asked(user="eve", talk="a"), True),
        (asked(user="zoe"), asked(user="eve"), False),
        (asked(), asked(user="eve"), False),
        (asked(user="zoe"), asked(), False),
        (asked(talk="zoes"), asked(talk="eves"), False),
        (asked("ben"), asked(user="eve"), True),
        (asked("ben", user="eve"), asked(user="eve"), True),
        (asked("ben", user="zoe"), asked(), True),
        (asked("ben", user="zoe"), asked(user="eve"), False),
    ],
)
def test_approver_may_read_the_answer_unless_end_users_differ(
    own: Exchange, began: Exchange, *, expected: bool
) -> None:
    """Over one key the person who asked; another key of the tenant, unless both name end users who differ."""
    assert may_read_answer(own, build_run_record(began, now_s=1.0)) is expected
