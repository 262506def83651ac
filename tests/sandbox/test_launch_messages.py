"""Orders and outcomes travel as lines and arrive as they were."""

from gateway.sandbox.launch_messages import CommandOutcome, Order, ProcessLimits


def test_launch_order_round_trips_as_a_single_line() -> None:
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


def test_command_outcome_round_trips() -> None:
    """With its detail."""
    outcome = CommandOutcome("not_started", 127, "'x': not found")
    assert CommandOutcome.from_line(outcome.to_line()) == outcome


def test_command_environment_contains_only_path_and_home() -> None:
    """Two variables, the same for everybody."""
    order = Order(argv=("ls",), cwd="/some folder", level="none", timeout_s=1)
    assert dict(order.environment) == {"PATH": "/usr/bin:/bin", "HOME": "/some folder"}
