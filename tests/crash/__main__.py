"""Command line of the crash matrix: `python -m crash --rounds 100`. A failing round prints its seed.

PYTHONPATH=tests python -m crash --seed 4711 --rounds 1
"""

from __future__ import annotations

import sys

from crash.soak import main

sys.exit(main(sys.argv[1:]))
