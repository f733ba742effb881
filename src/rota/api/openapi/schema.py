"""The schemas of forms.

What msgspec says of a type, and beyond that: what each field is for, that an answer has all of its fields, and null
said briefly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType
from typing import Any

import msgspec
from msgspec import UNSET, inspect

from rota.api.endpoint import Endpoint
from rota.api.openapi.prose import EVERYWHERE, fields_of
from rota.wire.problem import DeferredProblem, Problem
from rota.wire.text import WITHOUT_NUL

Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"


class Schemas:
    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        endpoints = list(endpoints)
        queries = _unique(endpoint.asks for endpoint in endpoints)
        bodies = _unique(endpoint.form for endpoint in endpoints)
        answers = _unique(
            form for endpoint in endpoints for form in (endpoint.gives, *endpoint.or_gives.values())
        ) | _unique((Problem, DeferredProblem))
        kinds = list((queries | bodies | answers).values())
        said, components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._of: dict[str, Schema] = {repr(kind): _brief(schema) for kind, schema in zip(kinds, said, strict=True)}
        forms = _by_name(kinds)
        asked = _by_name(bodies.values())
        self.components: dict[str, Schema] = {}
        self._queries: dict[str, Schema] = {}
        for name, component in sorted(components.items()):
            schema = _brief(component)
            schema.pop("title", None)
            if (form := forms.get(name)) is not None:
                _describe(schema, form)
                if name not in asked and form.cls not in queries.values():
                    _require(schema, form.cls)
            if name in asked or (form is not None and form.cls in queries.values()):
                _forbid_nul(schema)
            self.components[name] = schema
        for name in {kind.__name__ for kind in queries.values()} - set(asked):
            self._queries[name] = self.components.pop(name)

    def of(self, kind: Any) -> Schema:
        return self._of[repr(kind)]

    def query(self, kind: type) -> Mapping[str, Schema]:
        """What can be asked for, by name."""
        asked: Mapping[str, Schema] = self._queries.get(kind.__name__, {}).get("properties", {})
        return asked


def _unique(kinds: Iterable[Any]) -> dict[str, Any]:
    """Types need not be hashable, but they can be written."""
    return {repr(kind): kind for kind in kinds if kind not in (None, NoneType)}


def _by_name(kinds: Iterable[Any]) -> dict[str, inspect.StructType]:
    """All forms that are part of these. Of namesakes msgspec says their modules, and nobody wants to read that."""
    found: dict[str, inspect.StructType] = {}
    for form in _structs(kinds):
        name = form.cls.__name__
        if name in found:
            raise ValueError(f"two forms are called {name}: in {found[name].cls.__module__} and {form.cls.__module__}")
        found[name] = form
    return found


def _structs(kinds: Iterable[Any]) -> Iterator[inspect.StructType]:
    seen: set[type] = set()
    waiting: list[Any] = list(inspect.multi_type_info(list(kinds)))
    while waiting:
        info = waiting.pop()
        if isinstance(info, inspect.StructType):
            if info.cls not in seen:
                seen.add(info.cls)
                yield info
                waiting += [field.type for field in info.fields]
        elif isinstance(info, inspect.Type):
            waiting += [getattr(info, name) for name in info.__struct_fields__]
        elif isinstance(info, tuple):
            waiting += info


def _describe(schema: Schema, form: inspect.StructType) -> None:
    said = fields_of(form.cls)
    schema["description"] = " ".join((form.cls.__doc__ or "").split())
    for field in form.fields:
        described = schema["properties"][field.encode_name]
        if _is_time(field.type):
            described["format"] = "date-time"  # msgspec says so only of those that refuse naive ones
        words = said.get(field.name) or EVERYWHERE.get(field.name)
        if words is not None:
            schema["properties"][field.encode_name] = {"description": words, **described}


def _is_time(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_is_time(each) for each in kind.types)
    return isinstance(kind, inspect.DateTimeType)


def _require(schema: Schema, form: type[msgspec.Struct]) -> None:
    """What is only answered is there whole, but for what can be left out."""
    if form.__struct_config__.omit_defaults:
        return
    schema["required"] = [
        field.encode_name for field in msgspec.structs.fields(form) if field.default is not UNSET
    ]  # fmt: skip
    for described in schema["properties"].values():
        described.pop("default", None)


def _forbid_nul(schema: Any) -> None:
    """In every text that is asked for, as the door does."""
    if isinstance(schema, list):
        for each in schema:
            _forbid_nul(each)
    elif isinstance(schema, dict):
        is_text = schema.get("type") in ("string", ["string", "null"])
        if is_text and not {"pattern", "enum", "format"} & schema.keys():
            schema["pattern"] = WITHOUT_NUL
        for key in ("properties", "patternProperties"):
            _forbid_nul(list(schema.get(key, {}).values()))
        for key in ("items", "prefixItems", "additionalProperties", "anyOf"):
            _forbid_nul(schema.get(key))


def _brief(schema: Any) -> Any:
    """`type: [string, null]` instead of two schemas; and none that says nothing."""
    if isinstance(schema, list):
        return [_brief(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    said = {key: _brief(value) if key != "default" else value for key, value in schema.items()}
    if said.get("required") == []:
        del said["required"]
    options = said.get("anyOf", ())
    if len(options) == 2 and {"type": "null"} in options:
        (other,) = [option for option in options if option != {"type": "null"}]
        if isinstance(other.get("type"), str):
            del said["anyOf"]
            said = {**other, **said, "type": [other["type"], "null"]}
            if "enum" in other:
                said["enum"] = [*other["enum"], None]
    return said


def without_null(schema: Schema) -> Schema:
    """For what is said in a query or left out there."""
    said = {key: value for key, value in schema.items() if not (key == "default" and value in (None, []))}
    if isinstance(kind := said.get("type"), list):
        (said["type"],) = [each for each in kind if each != "null"]
    if "enum" in said:
        said["enum"] = [each for each in said["enum"] if each is not None]
    if len(options := [each for each in said.get("anyOf", ()) if each != {"type": "null"}]) == 1:
        del said["anyOf"]
        said = {**options[0], **said}
    return said


def plain(value: Any) -> Any:
    """An example, as JSON has it."""
    return msgspec.to_builtins(value, enc_hook=lambda other: other.value if isinstance(other, Enum) else str(other))
