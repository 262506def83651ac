"""`python -m gateway` is the command `gateway`."""

import sys

from gateway.cli import main

sys.exit(main())
