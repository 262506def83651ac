"""The state that a supervisor hands to its workers."""

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError, LoadedConfig, Problem, load
from gateway.server.reload_channel import Handover


def loaded(tmp_path: Path, count: int) -> LoadedConfig:
    place = tmp_path / "gateway.yaml"
    upstreams = ", ".join(f"{{name: u{i}, base_url: 'http://u', api_key: secret-{i}}}" for i in range(count))
    place.write_text(f"upstreams: [{upstreams}]\n")
    return load(place, environ={}, flags={})


def test_last_handed_over_configuration_is_readable_by_another_process(tmp_path: Path) -> None:
    """Whole, with its secrets, also where it is shorter than the one before."""
    handover = Handover(workers=2)
    for count in (50, 2):
        given = loaded(tmp_path, count)
        handover.publish_configuration(given)
        if (pid := os.fork()) == 0:
            os._exit(0 if handover.read_configuration() == given else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert handover.read_configuration().settings.upstreams[1].api_key == given.settings.upstreams[1].api_key


def test_config_error_is_handed_over_to_workers() -> None:
    """Each worker logs and counts it."""
    handover = Handover(workers=2)
    handover.publish_configuration(ConfigError((Problem("gateway.yaml", "keys", "none"),)))
    with pytest.raises(ConfigError, match=r"gateway\.yaml keys: none"):
        handover.read_configuration()


def test_missing_or_partial_handover_is_refused() -> None:
    """Nor is none at all."""
    with pytest.raises(ConfigError, match="another one is being read"):
        Handover(workers=2).read_configuration()


def test_handover_is_used_once_every_worker_accepts_it(tmp_path: Path) -> None:
    """It is open until the last one has said so."""
    handover = Handover(workers=2)
    handover.publish_configuration(loaded(tmp_path, 1))
    handover.read_configuration()
    assert handover.is_used() is None
    handover.vote_on_configuration(0, able=True)
    assert handover.is_used() is None
    handover.vote_on_configuration(1, able=True)
    assert handover.is_used() is True and handover.close_vote() is True


def test_handover_is_unused_if_one_worker_fails_to_build_it(tmp_path: Path) -> None:
    """Whatever the others say, before or afterwards."""
    for first in (0, 1):
        handover = Handover(workers=2)
        handover.publish_configuration(loaded(tmp_path, 1))
        handover.read_configuration()
        handover.vote_on_configuration(first, able=False)
        assert handover.is_used() is False
        handover.vote_on_configuration(1 - first, able=True)
        handover.vote_on_configuration(first, able=True)
        assert handover.is_used() is False and handover.close_vote() is False


def test_settled_reload_vote_stays_settled(tmp_path: Path) -> None:
    """What was open when a worker was started, or nobody waited longer, is refused: who is late finds that."""
    handover = Handover(workers=2)
    handover.publish_configuration(loaded(tmp_path, 1))
    handover.read_configuration()
    handover.vote_on_configuration(0, able=True)
    assert handover.close_vote() is False
    handover.vote_on_configuration(1, able=True)
    assert handover.is_used() is False


@pytest.mark.parametrize("able", [True, False])
def test_newer_handover_does_not_change_the_result_of_the_previous(tmp_path: Path, *, able: bool) -> None:
    """The next one is given before it has looked; that one is open, and neither changes the other."""
    handover = Handover(workers=1)
    handover.publish_configuration(loaded(tmp_path, 1))
    handover.read_configuration()
    handover.vote_on_configuration(0, able=able)
    handover.publish_configuration(loaded(tmp_path, 2))
    assert handover.is_used() is able
    handover.vote_on_configuration(0, able=True)
    handover.read_configuration()
    assert handover.is_used() is None


def test_repeated_configuration_starts_a_new_vote(tmp_path: Path) -> None:
    """Two SIGHUPs in a row: who waits for the first vote hears of its end, and not of the second one's."""
    handover = Handover(workers=2)
    handover.publish_configuration(loaded(tmp_path, 1))
    handover.read_configuration()
    handover.vote_on_configuration(0, able=True)
    handover.publish_configuration(loaded(tmp_path, 1))
    assert handover.is_used() is False
    handover.read_configuration()
    handover.vote_on_configuration(0, able=True)
    handover.vote_on_configuration(1, able=True)
    assert handover.is_used() is True


def test_handover_has_no_open_vote_before_the_first_reload() -> None:
    """A worker that is started then begins with what there is."""
    assert Handover(workers=3).close_vote() is False
