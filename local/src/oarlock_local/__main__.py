"""`python -m oarlock_local` is the command `oarlock-local`."""

import sys

from oarlock_local.cli import main

sys.exit(main())
