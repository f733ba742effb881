"""`rota webhook`: URLs that are told how jobs end, and what became of each message."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions, job_id
from rota.cli.table import printable, render
from rota.cli.terminal import has_colour, paint, say, say_json, talk, width_of
from rota.client.ask.webhook import (
    add_webhook,
    disable_webhook,
    enable_webhook,
    get_webhook,
    get_webhook_secret,
    list_deliveries,
    list_webhooks,
    redeliver,
    remove_webhook,
    rotate_webhook,
    try_webhook,
)
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.client.ask import Json

_ACTIONS = {
    "list": "the endpoints, and what holds them",
    "add": "tell a URL how every job ends",
    "show": "one endpoint",
    "remove": "tell it no more; what is still to be sent to it fails",
    "enable": "let one begin anew that is disabled or held",
    "disable": "tell it nothing until it is enabled again",
    "rotate": "give it a new secret; the old one signs too for a while",
    "test": "send it a message now",
    "deliveries": "what was sent to whom, the newest first",
    "redeliver": "send a message once more",
    "secret": "print what messages to the URLs of jobs are signed with",
}
_NAMED = ("show", "remove", "enable", "disable", "rotate", "test")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    for name in _NAMED:
        actions[name].add_argument("webhook", metavar="WEBHOOK")
    add = actions["add"].add_argument
    add("url", metavar="URL")
    add("--event", action="append", metavar="E", help="only of this; repeatable (default: all but cancelled, blocked)")
    add("--secret", metavar="S", help="the secret to sign with, whsec_…; one is made unless given")
    actions["show"].add_argument("--secret", action="store_true", help="print its secret too")
    actions["rotate"].add_argument("--secret", metavar="S", help="the new one; made unless given")
    actions["rotate"].add_argument("--keep", metavar="D", help="how long the old one signs too (24h); 0s is not at all")
    add = actions["deliveries"].add_argument
    add("--job", metavar="JOB", help="only those that tell of this job")
    add("--webhook", metavar="WEBHOOK", help="only those to this endpoint")
    add("--state", metavar="S", help="only those that are pending, delivered or failed")
    add("--limit", type=int, metavar="N", help="so many at most (100)")
    actions["redeliver"].add_argument("delivery", metavar="DELIVERY")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    action = args.action or "list"
    if action in ("enable", "disable", "remove"):
        return _change(session, args, action)
    return _RUN[action](session, args)


def webhook_id(text: str) -> str:
    """`webhook-3`, or `3` for short."""
    from rota.ids import parse_webhook, show_webhook

    return show_webhook(parse_webhook(f"webhook-{text}" if text.isdecimal() else text))


def delivery_id(text: str) -> str:
    from rota.ids import parse_delivery, show_delivery

    return show_delivery(parse_delivery(f"delivery-{text}" if text.isdecimal() else text))


def _list(session: Session, args: argparse.Namespace) -> int:
    answer = {"webhooks": list(session.pages(list_webhooks, "webhooks"))}
    if args.json:
        say_json(answer)
    elif answer["webhooks"]:
        heads = ["ID", "STATE", "PENDING", "FAILED", "URL", "EVENTS"]
        rows = [[each["id"], _state(each), str(each["pending"]), str(each["failures"]), each["url"],
                 ", ".join(each["events"])] for each in answer["webhooks"]]  # fmt: skip
        say("\n".join(render([heads, *rows], width=width_of(sys.stdout), flexible=(((4, 5), 16),))))
    else:
        talk("there are no webhooks; `rota webhook add URL` adds one")
    return 0


def _state(webhook: Json) -> str:
    return f"held until {webhook['held_until']}" if webhook["state"] == "held" else str(webhook["state"])


def _add(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(add_webhook(args.url, events=args.event or (), secret=args.secret))
    if answer.get("warning"):
        talk(f"warning: {answer['warning']}")
    if args.json:
        say_json(answer)
        return 0
    say(answer["id"])
    if args.secret is None:
        talk(f"its secret, for who receives: {answer['secret']}")
        talk(f"`rota webhook show {answer['id']} --secret` prints it again")
    return 0


def _show(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(get_webhook(webhook_id(args.webhook), secret=args.secret))
    if args.json:
        say_json(answer)
        return 0
    shown = {**answer, "events": ", ".join(answer["events"])}
    for name, value in shown.items():
        if value not in (None, ""):
            say(f"{name:<16} {printable(str(value))}")
    return 0


_CHANGE = {"remove": remove_webhook, "enable": enable_webhook, "disable": disable_webhook}


def _change(session: Session, args: argparse.Namespace, action: str) -> int:
    webhook = webhook_id(args.webhook)
    answer = session.ask(_CHANGE[action](webhook))
    if args.json:
        say_json(answer)
    else:
        say(f"{webhook} {'removed' if action == 'remove' else answer['state']}")
    return 0


def _rotate(session: Session, args: argparse.Namespace) -> int:
    webhook = webhook_id(args.webhook)
    answer = session.ask(rotate_webhook(webhook, secret=args.secret, keep=args.keep))
    if args.json:
        say_json(answer)
        return 0
    say(answer["secret"])
    until = answer["old_secret_until"]
    talk(f"the secret before it signs too until {until}" if until else "the secret before it signs no more")
    return 0


def _test(session: Session, args: argparse.Namespace) -> int:
    webhook = webhook_id(args.webhook)
    answer = session.ask(try_webhook(webhook))
    if args.json:
        say_json(answer)
    else:
        status = answer["status"] or "no answer"
        say(f"{webhook} {'delivered' if answer['delivered'] else 'failed'}: {status} in {answer['seconds']:.3f} s")
        if not answer["delivered"]:
            talk(printable(answer["error"]))
    return 0 if answer["delivered"] else 1


def _deliveries(session: Session, args: argparse.Namespace) -> int:
    job = None if args.job is None else job_id(args.job)
    webhook = None if args.webhook is None else webhook_id(args.webhook)
    answer = session.ask(list_deliveries(job=job, webhook=webhook, state=args.state, limit=args.limit))
    if args.json:
        say_json(answer)
    elif answer["deliveries"]:
        say("\n".join(_table(answer["deliveries"])))
        if answer.get("next"):
            talk("there are more; --limit shows them")
    else:
        talk("nothing was sent")
    return 0


def _table(deliveries: Sequence[Json]) -> list[str]:
    colour = has_colour(sys.stdout)
    rows = [["ID", "STATE", "TRIES", "LAST", "TYPE", "JOB", "URL", "REASON"]]
    rows += [
        [each["id"], each["state"], str(len(each["tries"])), _last(each), each["type"],
         each["job"] or each["group"] or "", each["url"], each["reason"] or ""]
        for each in deliveries
    ]  # fmt: skip

    def colours(column: int, text: str, padded: str) -> str:
        return paint(padded, text, colour=colour) if column == 1 else padded

    return render(rows, width=width_of(sys.stdout), flexible=(((6, 7), 16),), paint=colours)


def _last(delivery: Json) -> str:
    """What the receiver said last."""
    if not delivery["tries"]:
        return ""
    status = delivery["tries"][-1]["status"]
    return "none" if status is None else str(status)


def delivery_lines(deliveries: Sequence[Json]) -> list[str]:
    """What was told of a job, below it; the latest last."""
    lines = []
    for each in reversed(deliveries):
        last = f" ({_last(each)})" if each["tries"] else ""
        reason = f": {each['reason']}" if each["reason"] else ""
        lines.append(f"{'webhook':<16} {each['id']} {each['state']}{last} {each['type']} {each['url']}{reason}")
    return [printable(line) for line in lines]


def _redeliver(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(redeliver(delivery_id(args.delivery)))
    if args.json:
        say_json(answer)
    else:
        say(f"{answer['id']} {answer['state']}")
    return 0


def _secret(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(get_webhook_secret())
    say_json(answer) if args.json else say(answer["secret"])
    return 0


_RUN: dict[str, Callable[[Session, argparse.Namespace], int]] = {
    "list": _list, "add": _add, "show": _show, "rotate": _rotate, "test": _test, "deliveries": _deliveries,
    "redeliver": _redeliver, "secret": _secret,
}  # fmt: skip
