"""Schemas of requests and responses.

They are those of msgspec, with additions: descriptions of fields, required fields of responses, and a short notation
for null. Descriptions of fields are the docstrings below the fields. Python discards these strings, so the source is
read.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from types import NoneType
from typing import Any

import msgspec
from msgspec import UNSET, inspect

from rota.http.endpoint import Endpoint
from rota.http.problem_schemas import DeferredProblem, Problem
from rota.schema_types import NO_NUL_PATTERN

COMMON_DESCRIPTIONS: Mapping[str, str] = {
    "id": "Id.",
    "created_at": "Time of creation.",
    "next": "Cursor of the next page; `null` on the last page.",
    "warning": "Warning about a request that was carried out; `null` if there is none.",
    "limit": "Maximum number of items on the page.",
    "cursor": "Cursor of the page: the `next` of the previous page.",
    "job": "Id of the job.",
    "name": "Display name.",
    "status": "Status.",
    "started_at": "Time of the start; `null` before.",
    "finished_at": "Time of the end; `null` before.",
    "exit_code": "Exit code: 128+n after signal n; `null` if the job has not ended, never ran, or the code is unknown.",
    "reason": "Reason for the outcome.",
    "type": "Kind of work; it has a pool and a breaker.",
    "priority": "Priority; higher priorities start first.",
    "flow": "Flow that the job is a step of.",
    "phase": "Part of the flow in which jobs run one at a time.",
    "parallelizable": "Whether the job may run in parallel with other jobs of its phase and flow.",
    "target": "Object of the work; it has a pool and a breaker.",
    "unique": "Key that only one active chain can have.",
    "needs": "Artifacts that must exist before the job starts.",
    "produces": "Artifacts that the job produces.",
    "timeout": "Maximum run time, such as `2h`.",
    "idle_timeout": "Maximum time without output on stdout or stderr.",
    "skip_if": "Shell command that runs first; the job is skipped if it exits with 0.",
    "retries": "Maximum number of retries after a failure.",
    "retry": "Name of a retry policy in the configuration.",
    "worktree": "Whether the job runs in a git worktree and on a branch of its own.",
    "base": "Commit or branch at which the job's branch starts.",
    "patch": "Whether the changes of the job are kept as a patch.",
    "webhooks": "URLs to notify of the end of the job, in addition to the webhook endpoints.",
    "webhook_events": "Events to notify the URLs in `webhooks` of; empty for the default events.",
}
"""Descriptions of fields that have no docstring, by field name."""
Schema = dict[str, Any]
_REF = "#/components/schemas/{name}"
_REF_PREFIX = _REF.format(name="")


class Schemas:
    """Schemas of the types of all endpoints."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        endpoints = list(endpoints)
        queries = _unique(kind for endpoint in endpoints for kind in (endpoint.query_type, endpoint.path_type))
        bodies = _unique(endpoint.required_body_type for endpoint in endpoints)
        responses = _unique(
            kind for endpoint in endpoints for kind in (endpoint.response_type, *endpoint.other_response_types.values())
        ) | _unique((Problem, DeferredProblem))
        kinds = list((queries | bodies | responses).values())
        schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._by_type: dict[str, Schema] = {
            repr(kind): _simplify(schema) for kind, schema in zip(kinds, schemas, strict=True)
        }
        structs = _by_name(kinds)
        request_structs = _by_name(bodies.values())
        self.components: dict[str, Schema] = {}
        self._queries: dict[str, Schema] = {}
        for name, component in sorted(_rename_components(components).items()):
            schema = _simplify(component)
            schema.pop("title", None)
            if (struct := structs.get(name)) is not None:
                _describe(schema, struct)
                if name not in request_structs and struct.cls not in queries.values():
                    _require(schema, struct.cls)
            if name in request_structs or (struct is not None and struct.cls in queries.values()):
                _forbid_nul(schema)
            self.components[name] = schema
        for name in {_component_name(kind.__name__) for kind in queries.values()} - set(request_structs):
            self._queries[name] = self.components.pop(name)

    def schema_of(self, kind: Any) -> Schema:
        return self._by_type[repr(kind)]

    def query_schemas(self, kind: type) -> Mapping[str, Schema]:
        """Return the schemas of the parameters in a query or path by name."""
        properties: Mapping[str, Schema] = self._queries.get(_component_name(kind.__name__), {}).get("properties", {})
        return properties


def _component_name(class_name: str) -> str:
    """Return the name of a class in the document: `Job` for `JobView`."""
    return class_name.removesuffix("View")


def _rename_components(components: Mapping[str, Schema]) -> dict[str, Schema]:
    renamed: dict[str, Schema] = {}
    for class_name, component in components.items():
        name = _component_name(class_name)
        if name in renamed:
            raise ValueError(f"two components are called {name}: {class_name} and another class")
        renamed[name] = component
    return renamed


def _unique(kinds: Iterable[Any]) -> dict[str, Any]:
    """Return the types without duplicates. They need not be hashable, so they are compared by their `repr`."""
    return {repr(kind): kind for kind in kinds if kind not in (None, NoneType)}


def _by_name(kinds: Iterable[Any]) -> dict[str, inspect.StructType]:
    """Return all structs in these types by component name. Names must be unique, because msgspec would add module names
    to them."""
    structs: dict[str, inspect.StructType] = {}
    for struct in _structs(kinds):
        name = _component_name(struct.cls.__name__)
        if name in structs:
            modules = f"{structs[name].cls.__module__} and {struct.cls.__module__}"
            raise ValueError(f"two components are called {name}: in {modules}")
        structs[name] = struct
    return structs


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


def _describe(schema: Schema, struct: inspect.StructType) -> None:
    descriptions = field_descriptions(struct.cls)
    schema["description"] = " ".join((struct.cls.__doc__ or "").split())
    for field in struct.fields:
        field_schema = schema["properties"][field.encode_name]
        if _is_time(field.type):
            field_schema["format"] = "date-time"  # msgspec sets it only for times that must have an offset
        description = descriptions.get(field.name) or COMMON_DESCRIPTIONS.get(field.name)
        if description is not None:
            schema["properties"][field.encode_name] = {"description": description, **field_schema}


def _is_time(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(map(_is_time, kind.types))
    return isinstance(kind, inspect.DateTimeType)


def _require(schema: Schema, struct: type[msgspec.Struct]) -> None:
    """Require all fields of a response, except those that can be absent."""
    if struct.__struct_config__.omit_defaults:
        return
    schema["required"] = [field.encode_name for field in msgspec.structs.fields(struct) if field.default is not UNSET]
    for field_schema in schema["properties"].values():
        field_schema.pop("default", None)


def _forbid_nul(schema: Any) -> None:
    """Forbid NUL characters in all strings of a request, as the server does."""
    if isinstance(schema, list):
        for item in schema:
            _forbid_nul(item)
    elif isinstance(schema, dict):
        is_text = schema.get("type") in ("string", ["string", "null"])
        if is_text and not {"pattern", "enum", "format"} & schema.keys():
            schema["pattern"] = NO_NUL_PATTERN
        for key in ("properties", "patternProperties"):
            _forbid_nul(list(schema.get(key, {}).values()))
        for key in ("items", "prefixItems", "additionalProperties", "anyOf"):
            _forbid_nul(schema.get(key))


def _simplify(schema: Any) -> Any:
    """Write `type: [string, null]` instead of two schemas, and remove empty lists."""
    if isinstance(schema, list):
        return [_simplify(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    simplified = {key: _simplify(value) if key != "default" else value for key, value in schema.items()}
    if isinstance(ref := simplified.get("$ref"), str):
        simplified["$ref"] = _REF_PREFIX + _component_name(ref.removeprefix(_REF_PREFIX))
    if simplified.get("required") == []:
        del simplified["required"]
    options = simplified.get("anyOf", ())
    if len(options) == 2 and {"type": "null"} in options:
        (other,) = [option for option in options if option != {"type": "null"}]
        if isinstance(other.get("type"), str):
            del simplified["anyOf"]
            simplified = {**other, **simplified, "type": [other["type"], "null"]}
            if "enum" in other:
                simplified["enum"] = [*other["enum"], None]
    return simplified


def without_null(schema: Schema) -> Schema:
    """Return the schema of a query parameter, which is left out instead of null."""
    result = {key: value for key, value in schema.items() if not (key == "default" and value in (None, [], ()))}
    if isinstance(kinds := result.get("type"), list):
        (result["type"],) = [kind for kind in kinds if kind != "null"]
    if "enum" in result:
        result["enum"] = [value for value in result["enum"] if value is not None]
    if len(options := [option for option in result.get("anyOf", ()) if option != {"type": "null"}]) == 1:
        del result["anyOf"]
        result = {**options[0], **result}
    return result


def to_example(value: Any) -> Any:
    """Return an example as JSON types."""
    return msgspec.to_builtins(value, enc_hook=lambda other: other.value if isinstance(other, Enum) else str(other))


def field_descriptions(struct: type) -> dict[str, str]:
    """Return the descriptions of the fields of a struct by name, inherited fields included."""
    descriptions: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            descriptions |= _own_descriptions(kind)
    return descriptions


def _own_descriptions(struct: type) -> dict[str, str]:
    definition = _classes(struct.__module__).get(struct.__qualname__)
    return {} if definition is None else dict(_field_docstrings(definition))


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name; empty if no source is installed."""
    try:
        source = getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _field_docstrings(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, docstring in pairwise(definition.body):
        match field, docstring:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _join_lines(text)


def _join_lines(text: str) -> str:
    """Return the text without the line breaks of the source."""
    return " ".join(cleandoc(text).split())


def summary(text: str) -> str:
    """Return the first sentence without its period."""
    return " ".join(text.replace(".\n", ". ").partition(". ")[0].removesuffix(".").split())


def paragraphs(text: str | None) -> str:
    """Join the lines of each paragraph."""
    parts = cleandoc(text or "").split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else " ".join(part.split()) for part in parts)
