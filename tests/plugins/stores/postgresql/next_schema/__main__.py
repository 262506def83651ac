"""A gateway of the later version: its arguments are those of `gateway`."""

import sys
from functools import partial

from gateway.cli.main import main
from gateway.plugins.stores.postgresql import store

from . import NEXT_SCHEMA

store.migrate = partial(store.migrate, schema=NEXT_SCHEMA)
sys.exit(main(sys.argv[1:]))
