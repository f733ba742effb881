"""`rota submit`: hand a command over. On the hot path of scripts, so it imports as little as it can."""

from __future__ import annotations

import argparse

from rota.cli.asked import hint_at_quoting, refuse_both, refuse_bytes, surroundings
from rota.cli.job_option import add_job_options, job_asked
from rota.cli.parser import Usage, group_id, job_id
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.job import submit_job
from rota.client.session import Session
from rota.errors import Deferred
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_POLICIES = ("success", "finished", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota submit [options] -- COMMAND [ARGUMENT …] | rota submit --template T [--param K=V …] [options]"
    add = parser.add_argument
    add("--name", help="what to call it in lists")
    add("--after", action="append", metavar="JOB[:POLICY]", help=f"wait for JOB; POLICY is {', '.join(_POLICIES)}")
    add("--group", metavar="G", help="join this group, by id or name; it must not be over")
    add_job_options(parser, when="now", since="from now", if_taken="that job is the answer", retries=0)
    add("--follow", action="store_true", help="print what it writes until it ends; return its exit code")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise Usage("--follow and --json both want stdout; choose one")
    request = body(args)
    hint_at_quoting(request.get("command", []), "submit")
    session = Session(find_home(args.home))
    try:
        answer: Json = session.ask(submit_job(**request))
    except Deferred as refusal:
        return _deferred(args, refusal)
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


def _deferred(args: argparse.Namespace, refusal: Deferred) -> int:
    """An answer like the others, which HTTP says by a status of its own."""
    if args.json:
        say_json(deferred_json(refusal, job=None))
    talk(f"deferred: {refusal.message}")
    return Deferred.exit_code


def deferred_json(refusal: Deferred, **more: object) -> Json:
    """`more` is what an answer of this kind also has, and cannot have now."""
    depth = {} if refusal.depth is None else {"depth": refusal.depth}
    return {"result": "deferred", **more, "warning": refusal.message, **depth}


def _follow(session: Session, job: str) -> int:
    from rota.cli.chain import ended_job
    from rota.cli.follow import follow_chain
    from rota.cli.outcome import exit_code

    talk(job)
    try:
        follow_chain(session, job, ("stdout", "stderr"))
    except KeyboardInterrupt:
        talk(f"{job} goes on; `rota logs -f {job}` follows it again, `rota cancel {job}` ends it")
        raise
    return exit_code(ended_job(session, job))


def body(args: argparse.Namespace) -> Json:
    """The request as the API takes it; what was not asked for is left out, so that the server's defaults hold."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    refuse_both(command, args.template, "submit")
    if args.base is not None and not args.worktree and args.template is None:
        raise Usage("--base is what a worktree is made from: add --worktree, or leave it out")
    request = job_asked(args)
    if args.name is not None:
        request["name"] = args.name
    if args.after:
        request["after"] = [_edge(text) for text in args.after]
    if args.group is not None:
        request["group"] = group_id(args.group)
    if command:
        request["command"] = command
    refuse_bytes(request)
    return {**request, **surroundings(args)}


def _edge(text: str) -> dict[str, str]:
    job, colon, policy = text.partition(":")
    if colon and policy not in _POLICIES:
        raise Usage(f"--after {text}: the policy is one of {', '.join(_POLICIES)}")
    return {"job": job_id(job), "policy": policy or "success"}
