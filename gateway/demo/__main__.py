"""`python -m gateway.demo` runs the demo model alone."""

import argparse
import asyncio
import signal
import sys

from gateway.demo.app import start_demo
from gateway.demo.functions import NOTE
from gateway.demo.words import format_words_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gateway.demo", description="Run the demo model.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8090, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument("--words", action="store_true", help="print what the model obeys, and leave")
    options = parser.parse_args()
    if options.words:
        sys.stdout.write(f"{format_words_table()}\n{NOTE}")
    else:
        asyncio.run(_serve(host=options.host, port=options.port))


async def _serve(*, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    demo = await start_demo(host=host, port=port)
    sys.stdout.write(f"demo model on {demo.base_url}/v1\n")
    sys.stdout.flush()
    await stop.wait()
    await demo.close()


if __name__ == "__main__":
    main()
