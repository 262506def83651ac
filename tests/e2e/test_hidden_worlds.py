"""Hidden work in random worlds: none of one person reaches another's model, and one's own is there."""

from pathlib import Path

import pytest

from tests.api.responses.answering import answering

from .hidden_worlds import live_worlds


@pytest.mark.parametrize("n_worlds", [200, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_hidden_turns_reach_only_their_own_user_in_random_worlds(tmp_path: Path, n_worlds: int) -> None:
    """Three people, three conversations each, any order, three ways of Responses and chats, forged histories."""
    async with answering(tools={"file_operations": {"roots": [str(tmp_path)]}}) as client:
        figures = await live_worlds(client, n_worlds, steps=5)
    print(f"\n{figures}")
    assert figures.worlds == n_worlds
    assert figures.back and figures.ambiguous and figures.forged
