"""`python -m sim 1-100`: run these seeds; shrink and show the first that fails.

PYTHONPATH=tests python -m sim 4711           one seed
PYTHONPATH=tests python -m sim 0-9999 -j 4    many seeds, in four processes
"""

from __future__ import annotations

import sys

from sim.search import main

sys.exit(main(sys.argv[1:]))
