"""Command line of the crash matrix: `python -m tests.crash --rounds 100`. A failing round prints its seed.

python -m tests.crash --seed 4711 --rounds 1
"""

from __future__ import annotations

import sys

from tests.crash.soak import main

sys.exit(main(sys.argv[1:]))
