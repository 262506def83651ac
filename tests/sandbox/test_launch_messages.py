"""Orders and outcomes travel as lines and arrive as they were."""

from gateway.sandbox.launch_messages import CommandOutcome, Order, ProcessLimits


def test_an_order_arrives_as_it_was_sent() -> None:
    """Whatever is in its texts: it stays one line."""
    order = Order(
        argv=("/bin/sh", "-c", "echo 'ü\n\"$x\"'"),
        cwd="/a b",
        level="landlock",
        timeout_s=1.5,
        limits=ProcessLimits(cpu_s=3),
        read_only=True,
        readable=("/opt/x",),
    )
    line = order.to_line()
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert Order.from_line(line) == order


def test_an_outcome_arrives_as_it_was_sent() -> None:
    """With its detail."""
    outcome = CommandOutcome("not_started", 127, "'x': not found")
    assert CommandOutcome.from_line(outcome.to_line()) == outcome


def test_the_environment_of_a_command_is_built_from_nothing() -> None:
    """Two variables, the same for everybody."""
    order = Order(argv=("ls",), cwd="/some folder", level="none", timeout_s=1)
    assert dict(order.environment) == {"PATH": "/usr/bin:/bin", "HOME": "/some folder"}
