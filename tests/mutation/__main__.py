"""`python -m mutation [NAME…]`: make each break, and see its test fail.

PYTHONPATH=tests python -m mutation                  all of them
PYTHONPATH=tests python -m mutation fairness-off     one
"""

from __future__ import annotations

import sys

from mutation.runner import main

sys.exit(main(sys.argv[1:]))
