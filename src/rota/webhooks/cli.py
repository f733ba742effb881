"""`rota webhook`: manage webhooks and their deliveries."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions, job_id, with_id_prefix
from rota.cli.table import render
from rota.cli.terminal import has_color, paint, print_json, print_notice, print_text, terminal_width
from rota.client.requests.definitions import (
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
    send_test_webhook,
)
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.client.requests import Json

_ACTIONS = {
    "list": "List webhooks and their states.",
    "add": "Notify a URL when any job ends.",
    "show": "Show a webhook.",
    "remove": "Remove a webhook. Its pending deliveries fail.",
    "enable": "Enable a disabled or held webhook.",
    "disable": "Disable a webhook until it is enabled again.",
    "rotate": "Replace the signing secret. The old secret keeps signing for a while.",
    "test": "Send a test message now.",
    "deliveries": "List deliveries, newest first.",
    "redeliver": "Send a message again.",
    "secret": "Print the signing secret for the webhook URLs of jobs.",
}
_SINGLE_WEBHOOK_ACTIONS = ("show", "remove", "enable", "disable", "rotate", "test")


def add_webhook_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    for name in _SINGLE_WEBHOOK_ACTIONS:
        actions[name].add_argument("webhook", metavar="WEBHOOK", help="The webhook, by ID.")
    add = actions["add"].add_argument
    add("url", metavar="URL", help="The URL to notify.")
    add(
        "--event",
        action="append",
        metavar="EVENT",
        help="Notify only of this event (default: all except cancelled and blocked). Can be repeated.",
    )
    add("--secret", metavar="SECRET", help="Set the signing secret, whsec_… (default: generated).")
    actions["show"].add_argument("--secret", action="store_true", help="Include the signing secret.")
    actions["rotate"].add_argument(
        "--secret", metavar="SECRET", help="Set the new signing secret (default: generated)."
    )
    actions["rotate"].add_argument(
        "--keep", metavar="DURATION", help="Sign with the old secret too for DURATION (default: 24h); 0s disables it."
    )
    add = actions["deliveries"].add_argument
    add("--job", metavar="JOB", help="List only deliveries about this job.")
    add("--webhook", metavar="WEBHOOK", help="List only deliveries to this webhook.")
    add("--state", metavar="STATE", help="List only deliveries in this state: pending, delivered or failed.")
    add("--limit", type=int, metavar="N", help="List at most N deliveries (default: 100).")
    actions["redeliver"].add_argument("delivery", metavar="DELIVERY", help="The delivery, by ID.")


def run_webhook(args: argparse.Namespace) -> int:
    action = args.action or "list"
    session = SchedulerSession(find_home(args.home), is_read_only=action in ("list", "show", "deliveries", "secret"))
    if action in ("enable", "disable", "remove"):
        return _change(session, args, action)
    return _HANDLERS[action](session, args)


def webhook_id(text: str) -> str:
    """Parse a webhook ID: `webhook-3`, or `3` for short."""
    from rota.ids import format_webhook_id, parse_webhook_id

    return format_webhook_id(parse_webhook_id(with_id_prefix("webhook", text)))


def delivery_id(text: str) -> str:
    from rota.ids import format_delivery_id, parse_delivery_id

    return format_delivery_id(parse_delivery_id(with_id_prefix("delivery", text)))


def _list(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = {"webhooks": list(session.pages(list_webhooks, "webhooks"))}
    if args.json:
        print_json(response)
    elif response["webhooks"]:
        heads = ["ID", "STATE", "PENDING", "FAILED", "URL", "EVENTS"]
        rows = [
            [
                webhook["id"],
                _format_state(webhook),
                str(webhook["pending"]),
                str(webhook["failures"]),
                webhook["url"],
                ", ".join(webhook["events"]),
            ]
            for webhook in response["webhooks"]
        ]
        print_text("\n".join(render([heads, *rows], width=terminal_width(sys.stdout), flexible=(((4, 5), 16),))))
    else:
        print_notice("there are no webhooks; `rota webhook add URL` adds one")
    return 0


def _format_state(webhook: Json) -> str:
    return f"held until {webhook['held_until']}" if webhook["state"] == "held" else str(webhook["state"])


def _add(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(add_webhook(args.url, events=args.event or (), secret=args.secret))
    if args.json:
        print_json(response)
        return 0
    print_text(response["id"])
    if args.secret is None:
        print_notice(f"signing secret: {response['secret']}")
        print_notice(f"`rota webhook show {response['id']} --secret` prints it again")
    return 0


def _show(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(get_webhook(webhook_id(args.webhook), secret=args.secret))
    if args.json:
        print_json(response)
        return 0
    fields = {**response, "events": ", ".join(response["events"])}
    for name, value in fields.items():
        if value not in (None, ""):
            print_text(f"{name:<16} {escape_unprintable(str(value))}")
    return 0


_CHANGE_REQUESTS = {"remove": remove_webhook, "enable": enable_webhook, "disable": disable_webhook}


def _change(session: SchedulerSession, args: argparse.Namespace, action: str) -> int:
    webhook = webhook_id(args.webhook)
    response = session.request_json(_CHANGE_REQUESTS[action](webhook))
    if args.json:
        print_json(response)
    else:
        print_text(f"{webhook} {'removed' if action == 'remove' else response['state']}")
    return 0


def _rotate(session: SchedulerSession, args: argparse.Namespace) -> int:
    webhook = webhook_id(args.webhook)
    response = session.request_json(rotate_webhook(webhook, secret=args.secret, keep_old_for=args.keep))
    if args.json:
        print_json(response)
        return 0
    print_text(response["secret"])
    until = response["old_secret_until"]
    print_notice(f"the old secret signs too until {until}" if until else "the old secret no longer signs")
    return 0


def _test(session: SchedulerSession, args: argparse.Namespace) -> int:
    webhook = webhook_id(args.webhook)
    response = session.request_json(send_test_webhook(webhook))
    if args.json:
        print_json(response)
    else:
        status = response["status"] or "no response"
        print_text(
            f"{webhook} {'delivered' if response['delivered'] else 'failed'}: {status} in {response['seconds']:.3f} s"
        )
        if not response["delivered"]:
            print_notice(escape_unprintable(response["error"]))
    return 0 if response["delivered"] else 1


def _deliveries(session: SchedulerSession, args: argparse.Namespace) -> int:
    job = None if args.job is None else job_id(args.job)
    webhook = None if args.webhook is None else webhook_id(args.webhook)
    response = session.request_json(list_deliveries(job=job, webhook=webhook, state=args.state, limit=args.limit))
    if args.json:
        print_json(response)
    elif response["deliveries"]:
        print_text("\n".join(_delivery_table(response["deliveries"])))
        if response.get("next"):
            print_notice("there are more deliveries; --limit N lists them")
    else:
        print_notice("there are no deliveries")
    return 0


def _delivery_table(deliveries: Sequence[Json]) -> list[str]:
    color = has_color(sys.stdout)
    rows = [["ID", "STATE", "ATTEMPTS", "LAST", "TYPE", "JOB", "URL", "REASON"]]
    rows += [
        [
            delivery["id"],
            delivery["state"],
            str(len(delivery["attempts"])),
            _last_status(delivery),
            delivery["type"],
            delivery["job"] or delivery["group"] or "",
            delivery["url"],
            delivery["reason"] or "",
        ]
        for delivery in deliveries
    ]

    def paint_cell(column: int, text: str, padded: str) -> str:
        return paint(padded, text, color=color) if column == 1 else padded

    return render(rows, width=terminal_width(sys.stdout), flexible=(((6, 7), 16),), paint=paint_cell)


def _last_status(delivery: Json) -> str:
    """Return the status of the last attempt, `none` without a response, or an empty text without an attempt."""
    if not delivery["attempts"]:
        return ""
    status = delivery["attempts"][-1]["status"]
    return "none" if status is None else str(status)


def delivery_lines(deliveries: Sequence[Json]) -> list[str]:
    """Return the lines of `rota show` on the deliveries of a job, oldest first."""
    lines = []
    for delivery in reversed(deliveries):
        last = f" ({_last_status(delivery)})" if delivery["attempts"] else ""
        reason = f": {delivery['reason']}" if delivery["reason"] else ""
        lines.append(
            f"{'webhook':<18} {delivery['id']} {delivery['state']}{last} {delivery['type']} {delivery['url']}{reason}"
        )
    return [escape_unprintable(line) for line in lines]


def _redeliver(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(redeliver(delivery_id(args.delivery)))
    if args.json:
        print_json(response)
    else:
        print_text(f"{response['id']} {response['state']}")
    return 0


def _secret(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(get_webhook_secret())
    print_json(response) if args.json else print_text(response["secret"])
    return 0


_HANDLERS: dict[str, Callable[[SchedulerSession, argparse.Namespace], int]] = {
    "list": _list,
    "add": _add,
    "show": _show,
    "rotate": _rotate,
    "test": _test,
    "deliveries": _deliveries,
    "redeliver": _redeliver,
    "secret": _secret,
}
