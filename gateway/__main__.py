"""The program: `gateway` and `python -m gateway`."""

import sys

from gateway.cli.gc_tuning import collector_off


def main() -> int:
    """Run one command and return its exit code."""
    with collector_off():
        from gateway.cli.main import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
