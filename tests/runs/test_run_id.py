"""The ids of runs: of one form, and each new."""

from gateway.runs.run_id import generate_run_id


def test_run_ids_have_the_documented_form_and_are_unique() -> None:
    """`run_` and 24 hex digits."""
    ids = {generate_run_id() for _ in range(100)}
    assert len(ids) == 100 and all(len(one) == 28 and one.startswith("run_") for one in ids)
