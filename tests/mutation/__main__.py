"""`python -m mutation [NAME…]`: apply each break and check that its test fails.

PYTHONPATH=tests python -m mutation                  all breaks
PYTHONPATH=tests python -m mutation fairness-off     one break
PYTHONPATH=tests python -m mutation --write          write the table of docs/dev/reliability.md
"""

from __future__ import annotations

import sys

from mutation.breaks import write_page
from mutation.runner import main

if sys.argv[1:] == ["--write"]:
    write_page()
else:
    sys.exit(main(sys.argv[1:]))
