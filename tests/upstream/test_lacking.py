"""An endpoint is passed over for the models that it does not have."""

from gateway.upstream.endpoint_state import FIRST_LACK_S, LONGEST_LACK_S, MOST_LACKED, MissingModels


def test_missing_model_is_passed_over_for_growing_periods() -> None:
    """One request asks it again, and the others wait for what it says."""
    lacking = MissingModels()
    assert (
        lacking.add("m", 0.0)
        and lacking.is_missing("m", FIRST_LACK_S - 1)
        and not lacking.is_missing("m", FIRST_LACK_S)
    )
    lacking.note_trial("m", FIRST_LACK_S)
    assert lacking.is_missing("m", FIRST_LACK_S + 1)
    assert not lacking.add("m", FIRST_LACK_S) and lacking.is_missing("m", 3 * FIRST_LACK_S - 1)
    for _ in range(10):
        lacking.add("m", 0.0)
    assert lacking.is_missing("m", LONGEST_LACK_S - 1) and not lacking.is_missing("m", LONGEST_LACK_S)


def test_other_and_restored_models_are_not_passed_over() -> None:
    """Nor is a request whose model is not lacking changed by being asked."""
    lacking = MissingModels()
    lacking.add("m", 0.0)
    lacking.note_trial("other", 0.0)
    assert not lacking.is_missing("other", 0.0)
    lacking.remove("m")
    lacking.remove("m")
    assert not lacking.is_missing("m", 0.0) and not lacking.models


def test_missing_models_keep_only_the_latest_entries() -> None:
    """Clients may name any number."""
    lacking = MissingModels()
    for number in range(MOST_LACKED + 1):
        lacking.add(f"m{number}", 0.0)
    assert len(lacking.models) == MOST_LACKED and not lacking.is_missing("m0", 0.0) and lacking.is_missing("m1", 0.0)
