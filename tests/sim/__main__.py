"""`python -m tests.sim 1-100`: run these seeds; shrink and show the first that fails.

python -m tests.sim 4711           one seed
python -m tests.sim 0-9999 -j 4    many seeds, in four processes
"""

from __future__ import annotations

import sys

from tests.sim.search import main

sys.exit(main(sys.argv[1:]))
