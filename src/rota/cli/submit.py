"""`rota submit`: hand a command over. On the hot path of scripts, so it imports as little as it can."""

from __future__ import annotations

import argparse

from rota.cli.asked import draw, hint_at_quoting, lock, refuse_both, refuse_bytes, surroundings
from rota.cli.param import PARAM_HELP, params
from rota.cli.parser import Usage, group_id, job_id
from rota.cli.terminal import say, say_json, talk
from rota.client import api
from rota.client.problem import Deferred
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.api import Json

_POLICIES = ("success", "finished", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota submit [options] -- COMMAND [ARGUMENT …] | rota submit --template T [--param K=V …] [options]"
    add = parser.add_argument
    add("--template", metavar="T", help="what else it is asked for, and its command; `rota template list` shows them")
    add("--name", help="what to call it in lists")
    add("--type", help="its kind; draws from the pool type/TYPE")
    add("--priority", type=int, metavar="N", help="higher goes first; 0 unless given")
    add("--after", action="append", metavar="JOB[:POLICY]", help=f"wait for JOB; POLICY is {', '.join(_POLICIES)}")
    add("--needs", action="append", metavar="ARTIFACT", help="wait until it is there, as file:plan.md or plan_doc:NAME")
    add("--produces", action="append", metavar="ARTIFACT", help="what it makes; those who need it wait for it")
    add("--missing-producer", choices=("block", "wait"), help="if nobody is to produce what it needs; block unless set")
    add("--pin", metavar="BRANCH[@OID]", help="run only while the branch stands where it is now, or at OID")
    add("--lock", action="append", metavar="KEY[:shared]", help="hold this key while it runs")
    add("--pool", action="append", metavar="NAME[=W]", help="draw W (1) from this pool")
    add("--flow", help="its flow; draws from the pool flow/FLOW")
    add("--phase", metavar="P", help="its phase of the flow: one job of both runs at a time")
    add("--parallelizable", action="store_true", help="it may run beside others of its phase and flow")
    add("--unique", metavar="KEY", help="not while another with this key is active: then that job is the answer")
    add("--group", metavar="G", help="join this group, by id or name; it must not be over")
    add("--target", help="where its work belongs; draws from the pool target/TARGET")
    add("--timeout", metavar="D", help="end it after so long, as 90s or 1h30m")
    add("--idle-timeout", metavar="D", help="end it when it has written nothing for so long")
    add("--delay", metavar="D", help="do not start before so long from now")
    add("--retries", type=int, metavar="N", help="if it fails, try it again up to N times; 0 unless given")
    add("--retry", metavar="NAME", help="the retry policy: default, fleet, or one of your [retry.NAME]")
    add("--skip-if", metavar="CMD", help="skip it if this shell command exits 0")
    add("--worktree", action="store_true", help="run it in a git worktree and branch of its own")
    add("--base", metavar="REF", help="what to make the worktree from; HEAD unless given")
    add("--patch", action="store_true", help="keep what it changes in the working tree as command.patch")
    add("--with-diff", action="store_true", help="give it what you have not committed, as $ROTA_INPUT_PATCH")
    add("--webhook", action="append", metavar="URL", help="tell this URL how it ends")
    add("--webhook-event", action="append", metavar="E", help="of what; completed, failed and skipped unless given")
    add("--env", action="append", metavar="K=V", help="set in its environment, on top of yours")
    add("--cwd", metavar="DIR", help="its working directory instead of yours")
    add("--param", action="append", metavar="K=V", help=PARAM_HELP)
    add("--follow", action="store_true", help="print what it writes until it ends; return its exit code")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise Usage("--follow and --json both want stdout; choose one")
    request = body(args)
    hint_at_quoting(request.get("command", []), "submit")
    session = Session(find_home(args.home))
    answer = api.submit(session, request)
    if answer["result"] == "deferred":
        return _deferred(args, answer)
    if answer.get("warning"):
        talk(f"warning: {answer['warning']}")
    job: str = answer["job"]["id"]
    if answer["result"] == "already_active":
        talk(f"already active as {job}; nothing was added")
    if args.follow:
        return _follow(session, job)
    if args.json:
        say_json(answer)
    else:
        say(job)
    return 0


def _deferred(args: argparse.Namespace, answer: Json) -> int:
    if args.json:
        say_json(answer)
    talk(f"deferred: {answer.get('warning') or 'the queue is full and nothing was stored; try again later'}")
    return Deferred.exit_code


def _follow(session: Session, job: str) -> int:
    from rota.cli.follow import follow_chain
    from rota.cli.outcome import exit_code

    talk(job)
    try:
        follow_chain(session, job, ("stdout", "stderr"))
    except KeyboardInterrupt:
        talk(f"{job} goes on; `rota logs -f {job}` follows it again, `rota cancel {job}` ends it")
        raise
    return exit_code(api.ended_job(session, job))


def body(args: argparse.Namespace) -> Json:
    """The request as the API takes it; what was not asked for is left out, so that the server's defaults hold."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    refuse_both(command, args.template, "submit")
    if args.base is not None and not args.worktree and args.template is None:
        raise Usage("--base is what a worktree is made from: add --worktree, or leave it out")
    options = {
        "template": args.template,
        "name": args.name,
        "type": args.type,
        "priority": args.priority,
        "after": [_edge(text) for text in args.after or ()],
        "needs": args.needs or (),
        "produces": args.produces or (),
        "missing_producer": args.missing_producer,
        "pin": args.pin,
        "locks": [lock(text) for text in args.lock or ()],
        "pools": dict(draw(text) for text in args.pool or ()),
        "flow": args.flow,
        "phase": args.phase,
        "parallelizable": args.parallelizable or None,
        "unique": args.unique,
        "group": None if args.group is None else group_id(args.group),
        "target": args.target,
        "timeout": args.timeout,
        "idle_timeout": args.idle_timeout,
        "delay": args.delay,
        "skip_if": args.skip_if,
        "retries": args.retries,
        "retry": args.retry,
        "worktree": args.worktree or None,
        "base": args.base,
        "patch": args.patch or None,
        "with_diff": args.with_diff or None,
        "webhooks": args.webhook or (),
        "webhook_events": args.webhook_event or (),
        "params": params(args.param),
    }
    request: Json = {name: value for name, value in options.items() if value is not None and value not in ([], (), {})}
    if command:
        request["command"] = command
    refuse_bytes(request)
    return {**request, **surroundings(args)}


def _edge(text: str) -> dict[str, str]:
    job, colon, policy = text.partition(":")
    if colon and policy not in _POLICIES:
        raise Usage(f"--after {text}: the policy is one of {', '.join(_POLICIES)}")
    return {"job": job_id(job), "policy": policy or "success"}
