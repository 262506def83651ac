"""A conversation keeps its endpoint (`balance: sticky`), whichever lane its requests take."""

import json

from functional.several import BODY, CHAT, several
from functional.through import ask, post

from gateway.testing.scripts import build_ok_answer, serve

WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}
FINE = serve(build_ok_answer(json.dumps(WHOLE).encode()))
ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()


async def test_sticky_conversation_uses_one_endpoint_in_both_lanes() -> None:
    """Which has the prompts of the conversation in its cache."""
    async with several(FINE, FINE, FINE, balance="sticky") as up:
        used = set[int]()
        for number in range(12):
            named = b"X-Context-Conversation: c%d" % number
            before = up.counts
            passed = await ask(up.gateway, post(BODY, CHAT, named, b"X-Context-Mode: passthrough"))
            answered = await ask(up.gateway, post(ASKED, b"/context/v1/chat/completions", named))
            assert passed.status == answered.status == 200
            (place,) = [at for at, (old, new) in enumerate(zip(before, up.counts, strict=True)) if old != new]
            used.add(place)
        assert used == {0, 1, 2}
