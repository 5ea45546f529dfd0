"""`python -m oarlock_trainer` is `oarlock-trainer`."""

import sys

from oarlock_trainer.cli import main

sys.exit(main())
