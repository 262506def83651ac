"""The chain of the audit log: the same line has the same hash, and every change of it is found."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.storage.audit_chain import FIRST_HASH, link, verify, write_canonical_line

Row = tuple[int, dict[str, object], str]


def chain(*lines: dict[str, object]) -> list[Row]:
    rows: list[Row] = []
    for seq, line in enumerate(lines, 1):
        rows.append((seq, line, link(rows[-1][2] if rows else FIRST_HASH, line)))
    return rows


LINES: Sequence[dict[str, object]] = [{"tool": "sh", "step": n, "by": "", "created_s": 1.5 + n} for n in range(5)]


def test_audit_line_hash_is_stable() -> None:
    """Logs that were written stay verifiable: another program computes the same from the canonical line."""
    assert (
        write_canonical_line({"step": 1, "by": "é\n", "created_s": 5})
        == b'{"by":"\\u00e9\\n","created_s":5.0,"step":1}'
    )
    assert FIRST_HASH == "0" * 64
    assert link(FIRST_HASH, {"tool": "sh"}) == "895e6149078fded2db5dab06e5616e05a6d14c7ea2c0f2b37ebb8fb3d913d438"


def test_canonical_audit_line_ignores_key_order_and_number_type() -> None:
    """A database gives 5.0 back for 5, and columns in its own order."""
    assert write_canonical_line({"a": 1, "created_s": 5}) == write_canonical_line({"created_s": 5.0, "a": 1})
    assert write_canonical_line({"a": 1}) != write_canonical_line({"a": "1"}) != write_canonical_line({"a": None})


def test_non_finite_numbers_have_no_canonical_line() -> None:
    """NaN and infinity are in no JSON."""
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            write_canonical_line({"created_s": value})


def test_a_whole_chain_is_verified_at_once_and_page_by_page() -> None:
    """An empty one, too."""
    rows = chain(*LINES)
    assert verify([]) is None
    assert verify(rows) is None
    assert verify(rows[:2]) is None
    assert verify(rows[2:], seq=2, previous_hash=rows[1][2]) is None
    assert verify(rows[2:]) == 1


def test_audit_chain_names_a_missing_or_moved_line() -> None:
    """Also where the numbers were made to fit, or one is there twice, or two changed places."""
    rows = chain(*LINES)
    assert verify(rows[1:]) == 1
    assert verify([*rows[:2], *rows[3:]]) == 3
    assert verify([*rows[:2], *((seq - 1, line, hash_) for seq, line, hash_ in rows[3:])]) == 3
    assert verify([*rows[:2], rows[1], *rows[2:]]) == 3
    assert verify([rows[0], rows[2], rows[1], *rows[3:]]) == 2


@given(at=st.integers(0, 4), key=st.sampled_from(sorted(LINES[0])), value=st.text() | st.integers() | st.none())
def test_changed_audit_line_is_reported(at: int, key: str, value: object) -> None:
    """Even with a hash that fits it: then the next one does not."""
    rows = chain(*LINES)
    seq, line, hash_ = rows[at]
    changed = {**line, key: value}
    if write_canonical_line(changed) == write_canonical_line(line):
        return
    assert verify([*rows[:at], (seq, changed, hash_), *rows[at + 1 :]]) == seq
    fitting = link(rows[at - 1][2] if at else FIRST_HASH, changed)
    rest = [*rows[:at], (seq, changed, fitting), *rows[at + 1 :]]
    assert verify(rest) == (seq + 1 if at < 4 else None)
