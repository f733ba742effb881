"""`python -m sim 1-100`: these seeds; one that fails is made small and shown.

PYTHONPATH=tests python -m sim 4711           one
PYTHONPATH=tests python -m sim 0-9999 -j 4    many, by four processes
"""

from __future__ import annotations

import sys

from sim.search import main

sys.exit(main(sys.argv[1:]))
