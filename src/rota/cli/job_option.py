"""The options by which a job is asked for, alike in `rota submit` and `rota schedule`."""

from __future__ import annotations

import argparse

from rota.cli.asked import draw, lock
from rota.cli.param import PARAM_HELP, params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_AS_GIVEN = (
    "template", "type", "priority", "needs", "produces", "missing_producer", "pin", "flow", "phase", "unique", "target",
    "timeout", "idle_timeout", "delay", "retries", "retry", "skip_if", "base",
)  # fmt: skip
_FLAGS = ("parallelizable", "worktree", "patch", "with_diff")


def add_job_options(parser: argparse.ArgumentParser, *, when: str, since: str, if_taken: str, retries: int) -> None:
    """`when` it is made, `since` when its delay runs, `if_taken` what becomes of it when its key is in use."""
    add = parser.add_argument
    add("--template", metavar="T", help="what else it is asked for, and its command; `rota template list` shows them")
    add("--param", action="append", metavar="K=V", help=PARAM_HELP)
    add("--type", help="its kind; draws from the pool type/TYPE")
    add("--priority", type=int, metavar="N", help="higher goes first; 0 unless given")
    add("--needs", action="append", metavar="ARTIFACT", help="wait until it is there, as file:plan.md or plan_doc:NAME")
    add("--produces", action="append", metavar="ARTIFACT", help="what it makes; those who need it wait for it")
    add("--missing-producer", choices=("block", "wait"), help="if nobody is to produce what it needs; block unless set")
    add("--pin", metavar="BRANCH[@OID]", help=f"run only while the branch stands where it does {when}, or at OID")
    add("--lock", action="append", metavar="KEY[:shared]", help="hold this key while it runs")
    add("--pool", action="append", metavar="NAME[=W]", help="draw W (1) from this pool")
    add("--flow", help="its flow; draws from the pool flow/FLOW")
    add("--phase", metavar="P", help="its phase of the flow: one job of both runs at a time")
    add("--parallelizable", action="store_true", help="it may run beside others of its phase and flow")
    add("--unique", metavar="KEY", help=f"not while another with this key is active: then {if_taken}")
    add("--target", help="where its work belongs; draws from the pool target/TARGET")
    add("--timeout", metavar="D", help="end it after so long, as 90s or 1h30m")
    add("--idle-timeout", metavar="D", help="end it when it has written nothing for so long")
    add("--delay", metavar="D", help=f"do not start before so long {since}")
    add("--retries", type=int, metavar="N", help=f"if it fails, try it again up to N times; {retries} unless given")
    add("--retry", metavar="NAME", help="the retry policy: default, fleet, or one of your [retry.NAME]")
    add("--skip-if", metavar="CMD", help="skip it if this shell command exits 0")
    add("--worktree", action="store_true", help="run it in a git worktree and branch of its own")
    add("--base", metavar="REF", help="what to make the worktree from; HEAD unless given")
    add("--patch", action="store_true", help="keep what it changes in the working tree as command.patch")
    add("--with-diff", action="store_true", help=f"give it what is not committed {when}, as $ROTA_INPUT_PATCH")
    add("--webhook", action="append", metavar="URL", help="tell this URL how it ends")
    add(
        "--webhook-event",
        action="append",
        metavar="E",
        help="of what; job.run.completed, .failed, .skipped unless given",
    )
    add("--env", action="append", metavar="K=V", help="set in its environment, on top of yours")
    add("--cwd", metavar="DIR", help="its working directory instead of yours")


def job_asked(args: argparse.Namespace) -> Json:
    """As the API takes it; what was not asked for is left out, so that the server's defaults hold."""
    asked: Json = {name: getattr(args, name) for name in _AS_GIVEN}
    asked |= {name: getattr(args, name) or None for name in _FLAGS}
    asked |= {
        "params": params(args.param) or None,
        "locks": [lock(text) for text in args.lock or ()] or None,
        "pools": dict(draw(text) for text in args.pool or ()) or None,
        "webhooks": args.webhook,
        "webhook_events": args.webhook_event,
    }
    return {name: value for name, value in asked.items() if value is not None}
