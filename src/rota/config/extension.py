"""Policies that installed packages provide as entry points, and that the configuration or a request names.

Each kind of policy also has built-in ones, whose names an entry point cannot replace.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any

POOLS_POLICY = "pools"
"""Name of the policy that takes the demand of a job from its type, flow, target and pools."""


class PolicyKind:
    """Kind of policy that packages can provide."""

    def __init__(self, label: str, *, group: str, method: str, builtin_names: Sequence[str], remedy: str) -> None:
        self.label = label
        self.group = group
        self.method = method
        """Signature of the method that a policy must have."""
        self.builtin_names = builtin_names
        """Names of built-in policies; an entry point with such a name is ignored."""
        self.remedy = remedy
        """Advice for a policy that cannot be loaded."""


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


def load_policy(kind: PolicyKind, name: str) -> Any:
    """Load the policy: an entry point is an object, or a class that takes no arguments."""
    entry_points = find_entry_points(kind)
    if name not in entry_points:
        raise InvalidInput(
            f"unknown {kind.label} {name!r}; known: {', '.join([*kind.builtin_names, *sorted(entry_points)])}"
            f" (a package adds a policy with an entry point in the group {kind.group})"
        )
    try:
        loaded = entry_points[name].load()
        policy = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"the {kind.label} {name} cannot be loaded: {error!r}; fix it, or {kind.remedy}") from error
    if not callable(getattr(policy, kind.method.partition("(")[0], None)):
        raise InvalidInput(f"{name} is not a {kind.label}: it has no method {kind.method}")
    return policy


def find_entry_points(kind: PolicyKind) -> dict[str, EntryPoint]:
    """Return the entry points by name. If two packages use the same name, the first one is used."""
    from importlib import metadata  # slow to import, and rarely needed

    entry_points: dict[str, EntryPoint] = {}
    for entry_point in metadata.entry_points(group=kind.group):
        if entry_point.name not in kind.builtin_names:
            entry_points.setdefault(entry_point.name, entry_point)
    return entry_points
