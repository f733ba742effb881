"""YAML, read from libyaml's events as version 1.2 means it: few words are special, and no key comes twice.

The events alone are fast, and a loader of one's own is small: PyYAML's takes ten times as long, takes `no` for false,
and the last of two jobs that are called the same.
"""

from __future__ import annotations

import re

from rota.workflow.fault import Fault, Mark, Path, Step
from rota.workflow.scalar import Plain, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 100
MOST_NODES = 2_000_000
"""With every alias counted as what it stands for, so that a short text cannot become an endless one."""

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_SPECIAL_FIRST = frozenset("-+.0123456789~tTfFnN")
_MERGE = "<<"


class _Frame:
    """A list or a map that is being read."""

    __slots__ = ("anchor", "began", "is_map", "key", "merged", "value")

    def __init__(self, value: Any, *, is_map: bool, anchor: str | None, began: int) -> None:
        self.value = value
        self.is_map = is_map
        self.anchor = anchor
        self.began = began
        self.key: str | None = None
        """Of a map: what has been named and has no value yet."""
        self.merged: list[Any] = []

    @property
    def step(self) -> Step:
        return (self.key or "") if self.is_map else len(self.value)


class _Composer:
    def __init__(self, marks: dict[Path, Mark] | None) -> None:
        self.stack: list[_Frame] = []
        self.whole: list[Any] = []
        self._marks = marks
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    @property
    def path(self) -> Path:
        return tuple(frame.step for frame in self.stack if not frame.is_map or frame.key is not None)

    def fault(self, message: str, event: Any) -> Fault:
        mark = event.start_mark
        return Fault(self.path, message, (mark.line + 1, mark.column + 1))

    def scalar(self, event: Any) -> None:
        value = event.value
        if event.tag is not None:
            self._refuse_tag(event)
        elif not event.style and (not value or value[0] in _SPECIAL_FIRST):
            value = plain(value)
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.is_map and frame.key is None:
            self._name(frame, value, event)
            return
        self._count(1, event)
        self._add(value, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1

    def _name(self, frame: _Frame, key: str, event: Any) -> None:
        frame.key = str(key) if type(key) is Plain else key
        if frame.key == _MERGE and not event.style:
            return
        if self._marks is not None:
            self._marks.setdefault(self.path, (event.start_mark.line + 1, event.start_mark.column + 1))
        if key in frame.value:
            path, frame.key = self.path, None
            first = (self._marks or {}).get(path)
            where = f", first in line {first[0]}" if first is not None else ""
            raise self.fault(f"{str(key)!r} stands here twice{where}; give each a name of its own", event)
        frame.value[frame.key] = None  # keeps the order of the file

    def begin(self, event: Any) -> None:
        if self.whole:
            raise self.fault("a second document begins here; a workflow is one document, without ---", event)

    def open_list(self, event: Any) -> None:
        self._open(event, [], is_map=False)

    def open_map(self, event: Any) -> None:
        self._open(event, {}, is_map=True)

    def _open(self, event: Any, value: Any, *, is_map: bool) -> None:
        self._refuse_tag(event)
        self._refuse_key(event)
        if len(self.stack) >= DEEPEST:
            raise Fault((), f"nested more than {DEEPEST} deep", self.fault("", event).mark)
        self._count(1, event)
        if self._marks is not None and self.stack and not self.stack[-1].is_map:
            self._marks[self.path] = event.start_mark.line + 1, event.start_mark.column + 1
        self.stack.append(_Frame(value, is_map=is_map, anchor=event.anchor, began=self._nodes))

    def close(self, event: Any) -> None:
        frame = self.stack.pop()
        for source in frame.merged:
            for key, value in source.items():
                frame.value.setdefault(key, value)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.value, self._nodes - frame.began + 1
        self._add(frame.value, event)

    def alias(self, event: Any) -> None:
        self._refuse_key(event)
        if event.anchor not in self._anchors:
            raise self.fault(f"no anchor &{event.anchor} stands whole above this alias", event)
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        self._add(value, event)

    def _add(self, value: Any, event: Any) -> None:
        if not self.stack:
            self.whole.append(value)
            return
        frame = self.stack[-1]
        if not frame.is_map:
            if self._marks is not None:
                self._marks.setdefault(self.path, (event.start_mark.line + 1, event.start_mark.column + 1))
            frame.value.append(value)
            return
        if frame.key == _MERGE and _MERGE not in frame.value:
            self._merge(frame, value, event)
        else:
            frame.value[frame.key] = value
        frame.key = None

    def _merge(self, frame: _Frame, value: Any, event: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self.fault("<< takes in maps: write <<: *NAME, with &NAME at a map above", event)
        frame.merged += sources
        self._count(sum(len(source) for source in sources), event)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise self.fault(f"with its aliases written out it has more than {MOST_NODES} values; use fewer", event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag not in _TAGS:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self.fault(f"the tag {shown} makes nothing here; leave it out, or put the value in quotes", event)

    def _refuse_key(self, event: Any) -> None:
        if self.stack and self.stack[-1].is_map and self.stack[-1].key is None:
            raise self.fault("a key is a word, not a list, a map or an alias", event)


def compose(text: str, marks: dict[Path, Mark] | None = None) -> Any:
    """The document as dicts, lists and scalars; with `marks`, where each of them stands goes there."""
    from yaml import YAMLError

    composer = _Composer(marks)
    try:
        _feed(composer, text)
    except YAMLError as error:
        raise _syntax(text, error) from None
    return composer.whole[0] if composer.whole else None


def _feed(composer: _Composer, text: str) -> None:
    from yaml import events
    from yaml._yaml import CParser

    take = {
        events.ScalarEvent: composer.scalar,
        events.SequenceStartEvent: composer.open_list,
        events.MappingStartEvent: composer.open_map,
        events.SequenceEndEvent: composer.close,
        events.MappingEndEvent: composer.close,
        events.AliasEvent: composer.alias,
        events.DocumentStartEvent: composer.begin,
    }.get
    parser = CParser(text)
    next_event = parser.get_event
    while (event := next_event()) is not None:
        handle = take(type(event))
        if handle is not None:
            handle(event)


def _syntax(text: str, error: Any) -> Fault:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        bad = _UNPRINTABLE.search(text)
        if bad is None:
            return Fault((), f"not YAML: {error}")
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        return Fault((), f"the character U+{ord(bad[0]):04X} cannot stand in YAML; remove it", (line, column))
    began = error.context_mark
    context = error.context or ""
    since = f", begun in line {began.line + 1}" if began is not None and began.line != mark.line else ""
    said = f"{error.problem} ({context}{since})" if context else error.problem
    return Fault((), f"not YAML: {said}", (mark.line + 1, mark.column + 1))
