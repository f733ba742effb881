"""Kinds of policies, and the names of the built-in ones."""

from __future__ import annotations

from rota.config.extension import PolicyKind, load_policy

POOLS_POLICY = "pools"
"""Name of the policy that takes the demand of a job from its type, flow, target and pools."""
CONCURRENCY_POLICY = PolicyKind(
    "concurrency policy",
    group="rota.concurrency_policy",
    method="pool_demand(job)",
    builtin_names=(POOLS_POLICY,),
    remedy="`rota config set scheduler.policy default`",
)
GROUP_FAILURE_POLICY = PolicyKind(
    "group failure policy",
    group="rota.group_policies",
    method="outcomes(failed, waiting)",
    builtin_names=("stop", "continue", "skip"),
    remedy="use one of stop, continue, skip",
)


def check_policy(name: str) -> None:
    """Refuse a policy that cannot be loaded before it is stored, because the next start would fail."""
    if name != POOLS_POLICY:
        load_policy(CONCURRENCY_POLICY, name)
