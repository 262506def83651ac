"""What a supervisor hands to its workers."""

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError, Loaded, Problem, load
from gateway.handover import Handover


def loaded(tmp_path: Path, count: int) -> Loaded:
    place = tmp_path / "gateway.yaml"
    upstreams = ", ".join(f"{{name: u{i}, base_url: 'http://u', api_key: secret-{i}}}" for i in range(count))
    place.write_text(f"upstreams: [{upstreams}]\n")
    return load(place, environ={}, flags={})


def test_what_was_given_last_is_taken_by_another_process(tmp_path: Path) -> None:
    """Whole, with its secrets, also where it is shorter than the one before."""
    handover = Handover()
    for count in (50, 2):
        given = loaded(tmp_path, count)
        handover.give(given)
        if (pid := os.fork()) == 0:
            os._exit(0 if handover.take() == given else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert handover.take().settings.upstreams[1].api_key == given.settings.upstreams[1].api_key


def test_a_refusal_is_handed_over_as_well() -> None:
    """Each worker logs and counts it."""
    handover = Handover()
    handover.give(ConfigError((Problem("gateway.yaml", "keys", "none"),)))
    with pytest.raises(ConfigError, match=r"gateway\.yaml keys: none"):
        handover.take()


def test_a_half_written_one_is_not_used() -> None:
    """Nor is none at all."""
    with pytest.raises(ConfigError, match="another one is being read"):
        Handover().take()
