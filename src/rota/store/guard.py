"""`@refuse`: a change that the schema itself does not take, whoever writes it (INV-001, INV-002).

    @refuse run_worker UPDATE OF worker ON run WHEN NEW.worker <> OLD.worker SAY 'Cannot modify …';

becomes a trigger in each database's words. It concerns those statements alone that set the named columns: what
sets others, as every statement on a plain job's way does, is not asked and pays nothing.
"""

from __future__ import annotations

import re

REFUSAL = re.compile(
    r"^@refuse (?P<name>\w+) (?P<event>UPDATE OF [\w, ]+ ON \w+) WHEN (?P<when>.+?)\s+SAY (?P<text>'[^']*');$",
    re.MULTILINE | re.DOTALL,
)
