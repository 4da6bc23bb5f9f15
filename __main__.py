"""``python -m paceline bench``: see docs/python.md."""

import sys

from .optimizers.hosts.diffusers.bench.command import main

sys.exit(main())
