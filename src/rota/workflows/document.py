"""Parser of workflow files in any of their syntaxes. The result has dicts, lists and scalars.

`tomllib` reports no positions, so after an error they are searched in the text.

YAML 1.2 is composed from the events of libyaml. Few words are special, and duplicate keys are refused. A loader of
PyYAML takes seven times as long, reads `no` as false, and keeps the last of two jobs with the same name.
"""

from __future__ import annotations

import json
import re
import tomllib

from rota.workflows.scalars import DocumentPath, Fault, PathPart, PlainScalar, SourcePosition, make_scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SYNTAXES = ("yaml", "toml")
MAX_BYTES = 32 << 20
_LOOKS_LIKE_TOML = re.compile(r"""\s*+(?:#[^\n]*+\s*+)*+(?:\[|[A-Za-z0-9_."'-]+[ \t]*=)""")
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_TOML_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_TOML_DOTTED_KEY = re.compile(rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*")
_TOML_KEYS = re.compile(_TOML_KEY)
_TOML_LITERALS_AND_COMMENTS = re.compile(
    r"\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3,5})?|'{3}(?:[^']|'(?!''))*(?:'{3,5})?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments, in which brackets have no meaning."""
MAX_DEPTH = 100
MAX_NODES = 2_000_000
"""Maximum number of nodes with all aliases expanded, so that a short text cannot become a huge document."""
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ALLOWED_TAGS = {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_SPECIAL_FIRST_CHARACTERS = frozenset("-+.0123456789~tTfFnN")
_MERGE_KEY = "<<"


class WorkflowDocument:
    """Parsed workflow file. Source positions are computed on demand, because only error messages need them."""

    def __init__(self, text: str, syntax: str) -> None:
        self._text = text
        self._syntax = syntax
        self.data: Any = _parse(text, syntax)

    def positions(self) -> dict[DocumentPath, SourcePosition]:
        return _find_positions(self._text, self._syntax)


def decode_text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Fault((), f"larger than {MAX_BYTES >> 20} MiB; move long texts to separate files that the jobs read")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Fault((), "encoded as UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Fault((), f"not UTF-8: byte 0x{data[error.start]:02x}; save it as UTF-8", (line, 0)) from None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Fault((), "has a NUL character like a binary file; use a text file", (line, 0))
    return text.replace("\r\n", "\n")


def guess_syntax(text: str) -> str:
    """Guess the syntax of a text that has no file name."""
    return "toml" if _LOOKS_LIKE_TOML.match(text) else "yaml"


def _parse(text: str, syntax: str) -> Any:
    if syntax == "toml":
        return _parse_toml(text)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(
                text,
                object_pairs_hook=unique_members,
                parse_float=PlainScalar,
                parse_int=PlainScalar,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError):
            pass  # it may still be YAML, and the YAML parser reports a position otherwise

    try:
        return parse_yaml(text)
    except Fault:
        return parse_yaml(text, {})  # fails again, now with the position of the first duplicate


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, or raise `ValueError` if it has a duplicate key."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"duplicate key {key!r}")
        members[key] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _find_positions(text: str, syntax: str) -> dict[DocumentPath, SourcePosition]:
    if syntax == "toml":
        return _find_toml_positions(text)

    positions: dict[DocumentPath, SourcePosition] = {}
    try:
        # JSON escapes characters beyond 16 bits as two surrogates, which YAML does not accept.
        parse_yaml(_SURROGATE_PAIR.sub(_join_surrogates, text), positions)
    except Fault:
        return positions
    return positions


def _join_surrogates(pair: re.Match[str]) -> str:
    return chr(0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + int(pair[2], 16) - 0xDC00)


def _parse_toml(text: str) -> Any:
    try:
        return tomllib.loads(text, parse_float=PlainScalar)
    except tomllib.TOMLDecodeError as error:
        raise _make_toml_fault(text, str(error)) from None
    except RecursionError:
        raise Fault((), "nested too deeply") from None
    except ValueError as error:  # such as a number of 5,000 digits, or an invalid date
        raise Fault((), f"not TOML: {error}") from None


def _make_toml_fault(text: str, message: str) -> Fault:
    match = _TOML_ERROR_POSITION.search(message)
    if match is None:
        return Fault((), f"not TOML: {message}")
    line, column = (int(match[1]), int(match[2])) if match[1] else (text.count("\n") + 1, 0)
    return Fault((), f"not TOML: {message[: match.start()]}", (line, column))


def _find_toml_positions(text: str) -> dict[DocumentPath, SourcePosition]:
    """Return the positions of tables and keys. Everything in the value of a key has the position of the key."""
    positions: dict[DocumentPath, SourcePosition] = {}
    table: DocumentPath = ()
    depth = 0
    for number, (line, blank) in enumerate(
        zip(text.split("\n"), _blank_toml_literals(text).split("\n"), strict=True), 1
    ):
        begin = len(line) - len(line.lstrip(" \t"))
        is_header = line.startswith("[", begin)
        if depth == 0 and blank.strip() and (is_header or "=" in blank):
            path = _parse_toml_key(line[begin:].lstrip("[ \t"))
            table, path = (path, path) if is_header else (table, table + path)
            for end in range(1, len(path) + 1):
                positions.setdefault(path[:end], (number, begin + 1))
        if not (depth == 0 and is_header):
            depth = max(0, depth + sum(map(blank.count, "[{")) - sum(map(blank.count, "]}")))
    return positions


def _blank_toml_literals(text: str) -> str:
    """Replace strings and comments with underscores and keep the lines."""
    return _TOML_LITERALS_AND_COMMENTS.sub(
        lambda match: "".join("\n" if char == "\n" else "_" for char in match[0]), text
    )


def _parse_toml_key(text: str) -> DocumentPath:
    dotted = _TOML_DOTTED_KEY.match(text)
    return tuple(_unquote_toml(word) for word in _TOML_KEYS.findall(dotted[0])) if dotted else ()


def _unquote_toml(word: str) -> str:
    try:
        return str(next(iter(tomllib.loads(f"{word} = 0"))))
    except tomllib.TOMLDecodeError:
        return word


class _YamlFrame:
    """Unfinished list or map."""

    __slots__ = ("anchor", "first_node", "is_map", "key", "merged", "value")

    def __init__(self, value: Any, *, is_map: bool, anchor: str | None, first_node: int) -> None:
        self.value = value
        self.is_map = is_map
        self.anchor = anchor
        self.first_node = first_node
        self.key: str | None = None
        """Key of a map that has no value yet."""
        self.merged: list[Any] = []

    @property
    def path_part(self) -> PathPart:
        return (self.key or "") if self.is_map else len(self.value)


class _YamlComposer:
    def __init__(self, positions: dict[DocumentPath, SourcePosition] | None) -> None:
        self.stack: list[_YamlFrame] = []
        self.documents: list[Any] = []
        self._positions = positions
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    @property
    def path(self) -> DocumentPath:
        return tuple(frame.path_part for frame in self.stack if not frame.is_map or frame.key is not None)

    def make_fault(self, message: str, event: Any) -> Fault:
        mark = event.start_mark
        return Fault(self.path, message, (mark.line + 1, mark.column + 1))

    def add_scalar(self, event: Any) -> None:
        value = event.value
        if event.tag is not None:
            self._refuse_tag(event)
        elif not event.style and (not value or value[0] in _SPECIAL_FIRST_CHARACTERS):
            value = make_scalar(value)
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.is_map and frame.key is None:
            self._set_key(frame, value, event)
            return
        self._count(1, event)
        self._add(value, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1

    def _set_key(self, frame: _YamlFrame, key: str, event: Any) -> None:
        frame.key = str(key) if type(key) is PlainScalar else key
        if frame.key == _MERGE_KEY and not event.style:
            return
        if self._positions is not None:
            self._positions.setdefault(self.path, (event.start_mark.line + 1, event.start_mark.column + 1))
        if key in frame.value:
            path, frame.key = self.path, None
            first = (self._positions or {}).get(path)
            location = f", first in line {first[0]}" if first is not None else ""
            raise self.make_fault(f"duplicate key {str(key)!r}{location}; use unique names", event)
        frame.value[frame.key] = None  # reserves the position of the key in the order of the file

    def start_document(self, event: Any) -> None:
        if self.documents:
            raise self.make_fault("a second document starts here; a workflow is one document without ---", event)

    def open_list(self, event: Any) -> None:
        self._open(event, [], is_map=False)

    def open_map(self, event: Any) -> None:
        self._open(event, {}, is_map=True)

    def _open(self, event: Any, value: Any, *, is_map: bool) -> None:
        self._refuse_tag(event)
        self._refuse_key(event)
        if len(self.stack) >= MAX_DEPTH:
            raise Fault((), f"nested more than {MAX_DEPTH} levels deep", self.make_fault("", event).position)
        self._count(1, event)
        if self._positions is not None and self.stack and not self.stack[-1].is_map:
            self._positions[self.path] = event.start_mark.line + 1, event.start_mark.column + 1
        self.stack.append(_YamlFrame(value, is_map=is_map, anchor=event.anchor, first_node=self._nodes))

    def close(self, event: Any) -> None:
        frame = self.stack.pop()
        for source in frame.merged:
            for key, value in source.items():
                frame.value.setdefault(key, value)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.value, self._nodes - frame.first_node + 1
        self._add(frame.value, event)

    def add_alias(self, event: Any) -> None:
        self._refuse_key(event)
        if event.anchor not in self._anchors:
            raise self.make_fault(f"no complete anchor &{event.anchor} above this alias", event)
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        self._add(value, event)

    def _add(self, value: Any, event: Any) -> None:
        if not self.stack:
            self.documents.append(value)
            return
        frame = self.stack[-1]
        if not frame.is_map:
            if self._positions is not None:
                self._positions.setdefault(self.path, (event.start_mark.line + 1, event.start_mark.column + 1))
            frame.value.append(value)
            return
        if frame.key == _MERGE_KEY and _MERGE_KEY not in frame.value:
            self._merge(frame, value, event)
        else:
            frame.value[frame.key] = value
        frame.key = None

    def _merge(self, frame: _YamlFrame, value: Any, event: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self.make_fault("<< merges maps: write <<: *NAME, with the anchor &NAME at a map above", event)
        frame.merged += sources
        self._count(sum(len(source) for source in sources), event)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self.make_fault(f"more than {MAX_NODES} values with all aliases expanded; use fewer", event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag not in _ALLOWED_TAGS:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self.make_fault(f"the tag {shown} is not supported; remove it, or put the value in quotes", event)

    def _refuse_key(self, event: Any) -> None:
        if self.stack and self.stack[-1].is_map and self.stack[-1].key is None:
            raise self.make_fault("a key must be a word, not a list, a map or an alias", event)


def parse_yaml(text: str, positions: dict[DocumentPath, SourcePosition] | None = None) -> Any:
    """Return the document as dicts, lists and scalars, and add the position of each path to `positions`."""
    from yaml import YAMLError

    composer = _YamlComposer(positions)
    try:
        _feed_yaml_events(composer, text)
    except YAMLError as error:
        raise _make_yaml_fault(text, error) from None
    return composer.documents[0] if composer.documents else None


def _feed_yaml_events(composer: _YamlComposer, text: str) -> None:
    from yaml import events
    from yaml._yaml import CParser

    find_handler = {
        events.ScalarEvent: composer.add_scalar,
        events.SequenceStartEvent: composer.open_list,
        events.MappingStartEvent: composer.open_map,
        events.SequenceEndEvent: composer.close,
        events.MappingEndEvent: composer.close,
        events.AliasEvent: composer.add_alias,
        events.DocumentStartEvent: composer.start_document,
    }.get
    parser = CParser(text)
    next_event = parser.get_event
    while (event := next_event()) is not None:
        handle = find_handler(type(event))
        if handle is not None:
            handle(event)


def _make_yaml_fault(text: str, error: Any) -> Fault:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        match = _UNPRINTABLE.search(text)
        if match is None:
            return Fault((), f"not YAML: {error}")
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        return Fault((), f"the character U+{ord(match[0]):04X} is not allowed in YAML; remove it", (line, column))
    start_mark = error.context_mark
    context = error.context or ""
    start = (
        f", started in line {start_mark.line + 1}" if start_mark is not None and start_mark.line != mark.line else ""
    )
    problem = f"{error.problem} ({context}{start})" if context else error.problem
    return Fault((), f"not YAML: {problem}", (mark.line + 1, mark.column + 1))
