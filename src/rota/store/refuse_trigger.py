"""The `@refuse` directive: a change that the schema rejects from every writer (INV-001, INV-002).

    @refuse run_worker UPDATE OF worker ON run WHEN NEW.worker <> OLD.worker MESSAGE 'Cannot modify …';

Each dialect turns the directive into a trigger. The trigger fires only for statements that set the named columns, so
statements that set other columns, such as those of an ordinary job, do not pay for it.
"""

from __future__ import annotations

import re

REFUSE_DIRECTIVE = re.compile(
    r"^@refuse (?P<name>\w+) (?P<event>UPDATE OF [\w, ]+ ON \w+) WHEN (?P<when>.+?)\s+MESSAGE (?P<text>'[^']*');$",
    re.MULTILINE | re.DOTALL,
)
