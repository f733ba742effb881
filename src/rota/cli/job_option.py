"""Job options that `rota submit` and `rota schedule` share."""

from __future__ import annotations

import argparse

from rota.cli.environment_options import parse_lock, parse_pool
from rota.cli.param import PARAM_SYNTAX, parse_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_PLAIN_OPTIONS = (
    "template",
    "type",
    "priority",
    "needs",
    "produces",
    "missing_producer",
    "pin",
    "flow",
    "phase",
    "unique",
    "target",
    "timeout",
    "idle_timeout",
    "delay",
    "retries",
    "retry",
    "skip_if",
    "base",
)
_FLAG_OPTIONS = ("parallelizable", "worktree", "patch", "with_diff")


def add_job_options(
    parser: argparse.ArgumentParser, *, time_phrase: str, delay_phrase: str, on_conflict: str, retries: int
) -> None:
    """Add the job options. The phrases complete the help texts: `time_phrase` says when the job is submitted,
    `delay_phrase` when its delay starts, and `on_conflict` what happens if its unique key is in use."""
    add = parser.add_argument
    add(
        "--template",
        metavar="T",
        help="Use the command and the defaults of template T; `rota template list` lists templates.",
    )
    add("--param", action="append", metavar="K=V", help=f"Set a param: {PARAM_SYNTAX}.")
    add("--type", help="Set the job type; the job draws from the pool type/TYPE.")
    add("--priority", type=int, metavar="N", help="Set the priority; higher priorities start first (default: 0).")
    add(
        "--needs",
        action="append",
        metavar="ARTIFACT",
        help="Wait for this artifact, for example file:plan.md or plan_doc:NAME.",
    )
    add(
        "--produces",
        action="append",
        metavar="ARTIFACT",
        help="Declare an artifact that the job produces; jobs that need it wait.",
    )
    add(
        "--missing-producer",
        choices=("block", "wait"),
        help="Block or wait if no job produces a needed artifact (default: wait for file: and custom:, else block).",
    )
    add(
        "--pin", metavar="BRANCH[@OID]", help=f"Run only while BRANCH points to OID, or to its commit at {time_phrase}."
    )
    add("--lock", action="append", metavar="KEY[:shared]", help="Hold this lock while the job runs.")
    add("--pool", action="append", metavar="NAME[=W]", help="Draw W units (default: 1) from this pool.")
    add("--flow", help="Set the flow; the job draws from the pool flow/FLOW.")
    add("--phase", metavar="PHASE", help="Set the phase; one job of a flow and phase runs at a time.")
    add("--parallelizable", action="store_true", help="Allow the job to run next to others of its flow and phase.")
    add("--unique", metavar="KEY", help=f"Allow one active job with this key; if there is one, {on_conflict}.")
    add("--target", help="Set the target; the job draws from the pool target/TARGET.")
    add("--timeout", metavar="DURATION", help="Kill the job after DURATION, for example 90s or 1h30m.")
    add("--idle-timeout", metavar="DURATION", help="Kill the job after DURATION without output.")
    add("--delay", metavar="DURATION", help=f"Start the job no earlier than DURATION {delay_phrase}.")
    add("--retries", type=int, metavar="N", help=f"Retry the job up to N times if it fails (default: {retries}).")
    add("--retry", metavar="NAME", help="Set the retry policy: default, fleet, or a configured [retry.NAME].")
    add("--skip-if", metavar="CMD", help="Skip the job if this shell command exits with 0.")
    add("--worktree", action="store_true", help="Run the job in its own git worktree and branch.")
    add("--base", metavar="REF", help="Create the worktree from REF (default: HEAD).")
    add(
        "--patch", action="store_true", help="Save the changes that the job makes to the working tree as command.patch."
    )
    add(
        "--with-diff",
        action="store_true",
        help=f"Pass the uncommitted changes at {time_phrase} to the job as $ROTA_INPUT_PATCH.",
    )
    add("--webhook", action="append", metavar="URL", help="Notify this URL when the job ends.")
    add(
        "--webhook-event",
        action="append",
        metavar="EVENT",
        help="Notify of this event only (default: job.run.completed, .failed and .skipped).",
    )
    add(
        "--env",
        action="append",
        metavar="K=V",
        help="Set an environment variable, in addition to the environment of the caller.",
    )
    add("--cwd", metavar="DIR", help="Run the job in DIR (default: the current directory).")


def job_options(args: argparse.Namespace) -> Json:
    """Return the given options as fields of the request; the defaults of the server apply to the others."""
    request: Json = {name: getattr(args, name) for name in _PLAIN_OPTIONS}
    request |= {name: getattr(args, name) or None for name in _FLAG_OPTIONS}
    request |= {
        "params": parse_params(args.param) or None,
        "locks": [parse_lock(text) for text in args.lock or ()] or None,
        "pools": dict(parse_pool(text) for text in args.pool or ()) or None,
        "webhooks": args.webhook,
        "webhook_events": args.webhook_event,
    }
    return {name: value for name, value in request.items() if value is not None}
