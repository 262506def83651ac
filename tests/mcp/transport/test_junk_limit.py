"""The bound of what is no message."""

from gateway.mcp.transport.junk_limit import LINES, MIB, Noise


def test_junk_limit_is_counted_per_minute() -> None:
    """A server that logs a little to its output for months is not ended."""
    now_s = 0.0
    noise = Noise(monotonic=lambda: now_s)
    for _ in range(10):
        noise.add(lines=LINES, size_bytes=MIB << 20)
        assert noise.excess is None
        now_s += 60
    noise.add(lines=LINES)
    noise.add(lines=1)
    assert noise.excess == "it wrote more than 100,000 lines within a minute that are no messages"


def test_bytes_of_valid_messages_do_not_count_as_junk() -> None:
    """They are taken back once they are read."""
    noise = Noise(monotonic=lambda: 0.0)
    noise.add(size_bytes=MIB << 20)
    noise.add(size_bytes=1)
    assert noise.excess == "it wrote more than 256 MiB within a minute that are no messages"
    noise.add(size_bytes=-1)
    assert noise.excess is None
