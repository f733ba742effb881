"""The names of policies: Rota's own, and what installed packages bring."""

from __future__ import annotations

from rota.config.extension import Kind, load

POOLS = "pools"
"""The pools as configured."""
CONCURRENCY = Kind(
    "concurrency policy", group="rota.concurrency_policy", method="draws(job)", own=(POOLS,),
    instead="`rota config set scheduler.policy default`",
)  # fmt: skip
GROUP_FAILURE = Kind(
    "group failure policy", group="rota.group_policies", method="fates(failed, waiting)",
    own=("stop", "continue", "skip"), instead="use one of stop, continue, skip",
)  # fmt: skip


def check_policy(name: str) -> None:
    """What cannot be loaded is refused here, before it is written down: with it the next start would fail."""
    if name != POOLS:
        load(CONCURRENCY, name)
