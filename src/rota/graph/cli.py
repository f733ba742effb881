"""`rota graph`: draw the dependency graph in plain ASCII."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import UsageError, job_id
from rota.cli.terminal import Canvas, can_redraw, flush, print_notice, print_text, terminal_height, terminal_width
from rota.client.requests.jobs import get_graph
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from rota.client.requests import Json
    from rota.client.transport import HttpResponse

_POLL_SECONDS = 2.0
"""Poll interval for changes that cause no event, because they happen outside the scheduler."""


def add_graph_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="Include ended jobs.")
    parser.add_argument("--job", metavar="JOB", help="Show only this job, its dependencies and its dependents.")
    parser.add_argument(
        "--format", choices=("dag", "json"), default="dag", help="Print a drawing, or nodes and edges as JSON."
    )
    parser.add_argument(
        "--max-depth", type=int, metavar="N", help="Follow at most N dependency steps from a job (default: 3)."
    )
    parser.add_argument("--watch", action="store_true", help="Redraw the graph after each change, until Ctrl-C.")


def run_graph(args: argparse.Namespace) -> int:
    if args.max_depth is not None and args.max_depth < 0:
        raise UsageError("--max-depth takes a number of steps, 0 or more")
    format_name = "json" if args.json else args.format
    request = {
        "format": format_name,
        "all": args.all,
        "job": None if args.job is None else job_id(args.job),
        "max_depth": args.max_depth,
    }
    session = SchedulerSession(find_home(args.home), is_read_only=True)
    if args.watch:
        _watch_graph(
            session,
            request,
            _print_line if format_name == "json" else _make_canvas_printer() if can_redraw(sys.stdout) else _print_page,
        )
    response = session.request_json(get_graph(**request))
    print_text(as_json(response) if format_name == "json" else response["text"])
    if response.get("skipped"):
        print_notice(_omitted_text(response))
    return 0


def as_json(graph: Json) -> str:
    """Return the graph as JSON with one node or edge a line, which is fast for ten thousand of them."""
    import json

    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {_format_part(part)}" for name, part in graph.items()) + "\n}"


def _format_part(part: object) -> str:
    import json

    dump = json.JSONEncoder(ensure_ascii=False).encode
    if not isinstance(part, list) or not part:
        return dump(part)
    return "[\n" + ",\n".join(f"    {dump(item)}" for item in part) + "\n  ]"


def _omitted_text(graph: Json) -> str:
    """Return a line on the jobs that the scheduler omitted from a large graph."""
    omitted = graph["skipped"]
    text = f"{omitted} more job{'s' * (omitted != 1)}; --job JOB shows one"
    return f"{text} of them" if "nodes" in graph else f"{text}, --format json lists all"


def _watch_graph(session: SchedulerSession, request: dict[str, Any], show: Callable[[HttpResponse], None]) -> NoReturn:
    """Show each new version of the graph. Ctrl-C or the end of the scheduler raises."""
    last_seen: str | None = None
    while True:
        response = session.request(get_graph(**request, wait=_POLL_SECONDS, last_seen=last_seen))
        if response.status != 304:
            last_seen = response.headers.get("etag")
            show(response)


def _print_line(response: HttpResponse) -> None:
    """Print a graph as one line of JSON, for programs."""
    print_text(response.body.decode())
    flush()


def _print_page(response: HttpResponse) -> None:
    """Print a graph and an empty line, for output that cannot be redrawn."""
    print_text(response.json()["text"] + "\n")
    flush()


def _make_canvas_printer() -> Callable[[HttpResponse], None]:
    canvas = Canvas(sys.stdout)

    def show(response: HttpResponse) -> None:
        width, height = terminal_width(sys.stdout) or 80, terminal_height(sys.stdout)
        canvas.draw(fit_to_screen(response.json(), width=width - 1, height=height - 1))

    return show


def fit_to_screen(graph: Json, *, width: int, height: int) -> list[str]:
    """Return the lines of the graph that fit the terminal, and a line on the ones that do not."""
    lines = graph["text"].split("\n")
    last = [f"... {_omitted_text(graph)}"] if graph["skipped"] else []
    hidden = len(lines) + len(last) - height
    if hidden > 0:
        lines, last = lines[: height - 1], [f"... {hidden + 1} more lines; run without --watch to see all"]
    return [line if len(line) <= width else f"{line[: width - 3]}..." for line in (*lines, *last)]
