"""`python -m tests.mutation [NAME…]`: apply each break and check that its test fails.

python -m tests.mutation                  all breaks
python -m tests.mutation fairness-off     one break
python -m tests.mutation --write          write the table of docs/dev/reliability.md
"""

from __future__ import annotations

import sys

from tests.mutation.breaks import write_page
from tests.mutation.runner import main

if sys.argv[1:] == ["--write"]:
    write_page()
else:
    sys.exit(main(sys.argv[1:]))
