"""An approval as clients see it."""

import orjson

from gateway.approvals.view import build_approval_view
from gateway.contracts.storage.endorsements import get_check_word
from tests.plugins.stores.records import approval


def test_a_view_shows_the_call_and_no_secret() -> None:
    """Its check word is made of the secret, which stays here."""
    made = approval("ap_1", run_id="run_1")
    view = build_approval_view(made)

    assert view["tool"] == made.tool and view["arguments"] == orjson.loads(made.arguments)
    assert view["check_word"] == get_check_word(made)
    assert made.secret not in orjson.dumps(view).decode()
