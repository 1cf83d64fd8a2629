"""`python -m vramledger`."""

import sys

from vramledger.cli import main

sys.exit(main())
