"""The confinement of commands that run unasked: tried on this machine, with a command that does nothing."""

import tempfile

from gateway.cli.doctor.findings import Finding
from gateway.sandbox.confinement import find_strongest
from gateway.sandbox.launch_messages import Order

_TRIAL_S = 5.0


async def examine_confinement() -> Finding:
    """Return how this machine confines a command that may have no effect."""
    with tempfile.TemporaryDirectory() as folder:
        order = Order(argv=(), cwd=folder, level="none", timeout_s=_TRIAL_S, read_only=True)
        choice = await find_strongest("auto", order)
    if choice.level is not None:
        return Finding("ok", "sandbox", f"commands that run unasked are confined by {choice.level}")
    return Finding(
        "warn",
        "sandbox",
        f"this machine cannot confine a command, so each one of a tool asks: {choice.reason}",
        "install bubblewrap, or allow user namespaces (docs/security.md)",
    )
