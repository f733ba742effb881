"""Sections of the documentation that are generated from the code.

`make openapi` writes them. A section is between the lines `<!-- generated: NAME -->` and `<!-- end -->` of its page.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import rota
from rota.cli.parser import VERBS, verb_parser
from rota.http.openapi.schema import COMMON_DESCRIPTIONS, field_descriptions
from rota.jobs.schemas import EffectivePolicy, JobView, RunView, WaitReason
from rota.jobs.submission import Submission
from rota.kernel.events import KINDS
from tests.docs.page import ROOT

_SOURCE = Path(rota.__file__).parent
_METRIC_KINDS = {
    "Gauge": "gauge",
    "Counter": "counter",
    "ExternalCounter": "counter",
    "Histogram": "histogram",
    "Info": "gauge",
}
_GLOBAL_OPTION = re.compile(r"^  (-h, --help|--home DIR|--json) .*\n(?: {10,}.*\n)*", re.MULTILINE)


def render_event_kinds() -> str:
    rows = "".join(f"| `{kind}` | {text} |\n" for kind, text in KINDS.items())
    return f"| kind | meaning |\n|---|---|\n{rows}"


def render_metrics() -> str:
    rows = "".join(
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.text} |\n"
        for metric in sorted(set(_metrics()))
    )
    return f"| name | type | labels | meaning |\n|---|---|---|---|\n{rows}"


class _Metric(NamedTuple):
    is_of_process: bool
    kind: str
    name: str
    text: str
    labels: tuple[str, ...]


def _metrics() -> Iterator[_Metric]:
    """Read the metrics from the source: some exist only while a scheduler runs."""
    for path in sorted(_SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id=kind), args=[ast.Constant(value=str(name)), ast.Constant(value=str(text)), *rest]
                ) if kind in _METRIC_KINDS:
                    yield _Metric(
                        is_of_process=name.startswith("process_"),
                        kind=_METRIC_KINDS[kind],
                        name=f"{name}_total" if _METRIC_KINDS[kind] == "counter" else name,
                        text=text,
                        labels=_labels(rest),
                    )


def _labels(arguments: Sequence[ast.expr]) -> tuple[str, ...]:
    """Return the first argument that is a tuple of texts."""
    for argument in arguments:
        match argument:
            case ast.Tuple(elts=[ast.Constant(value=str()), *_]):
                labels: tuple[str, ...] = ast.literal_eval(argument)
                return labels
    return ()


def render_fields(struct: type[msgspec.Struct]) -> str:
    descriptions = {**COMMON_DESCRIPTIONS, **field_descriptions(struct)}
    rows = "".join(f"| `{name}` | {descriptions.get(name, '')} |\n" for name in struct.__struct_fields__)
    return f"| field | meaning |\n|---|---|\n{rows}"


def render_commands() -> str:
    sections = []
    for verb in VERBS:
        parser, _ = verb_parser(verb)
        sections.append(f"## rota {verb}\n\n{_help(parser)}")
        for action, child in _actions(parser):
            sections.append(f"### rota {verb} {action}\n\n{_help(child)}")
    return "\n".join(sections)


def _help(parser: argparse.ArgumentParser) -> str:
    text = _GLOBAL_OPTION.sub("", parser.format_help()).replace(" [-h] [--home DIR] [--json]", "")
    return f"```text\n{text.rstrip().removesuffix('options:').rstrip()}\n```\n"


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "commands": ("reference/cli.md", render_commands),
    "event kinds": ("reference/events.md", render_event_kinds),
    "metrics": ("reference/metrics.md", render_metrics),
    "fields of a job": ("reference/job-fields.md", lambda: render_fields(JobView)),
    "fields of a run": ("reference/job-fields.md", lambda: render_fields(RunView)),
    "fields of a wait": ("reference/job-fields.md", lambda: render_fields(WaitReason)),
    "fields of a policy": ("reference/job-fields.md", lambda: render_fields(EffectivePolicy)),
    "fields of a submit": ("reference/job-fields.md", lambda: render_fields(Submission)),
}
"""Generated sections by name, each with its page."""


def replace_section(page: str, name: str, body: str) -> str:
    """Return the text of a page with the section replaced."""
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->\n"
    head, found, tail = page.partition(begin)
    assert found, f"no section {name!r}"
    _, found, tail = tail.partition(end)
    assert found, f"section {name!r} does not end"
    return f"{head}{begin}\n{body}\n{end}{tail}"


def main() -> None:
    os.environ["COLUMNS"] = "100"
    for name, (page, render) in SECTIONS.items():
        path = ROOT / "docs" / page
        path.write_text(replace_section(path.read_text(), name, render()))


if __name__ == "__main__":
    main()
