"""Address of a PostgreSQL store: `postgresql://user@host/database?search_path=rota`.

`search_path` names the schema of the store, so that several stores can share a database. Every other parameter is a
libpq parameter. The timeouts have defaults here that the URL can override: with the operating system's own, a scheduler
waits a quarter of an hour for a dead server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.errors import ConfigError

DEFAULT_SCHEMA = "rota"
_URL = re.compile(r"(?P<base>postgres(?:ql)?://(?:[^@/]*@)?(?P<rest>[^?]*))(?:\?(?P<query>.*))?", re.DOTALL)
"""URL as libpq parses it: a password may contain `?`."""
_PORTS = re.compile(r"[0-9,]*")
_HOST = re.compile(r"[\w.:-]+")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_DEFAULTS = {
    "application_name": "rota",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",
}


class PostgresAddress(NamedTuple):
    parameters: Mapping[str, str]
    schema: str
    redacted_url: str
    """URL for messages, without the password."""

    @property
    def lock_key(self) -> int:
        """Key of the scheduler's advisory lock. Advisory locks are separate in each database."""
        return int.from_bytes(sha256(f"rota:{self.schema}".encode()).digest()[:8], signed=True)

    @property
    def channel(self) -> str:
        return f"rota_{self.schema}"


def parse_address(url: str) -> PostgresAddress:
    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError("the store's URL must start with postgresql://")
    if "@" in match["rest"]:  # part of a password would be taken for a host and shown in messages
        raise ConfigError("the store's URL has more than one @; in a password, write @ as %40 and / as %2F")
    schema, query = _split_schema(match["query"] or "")
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"search_path={schema} in the store's URL is not a valid schema name; "
            "use up to 48 lowercase letters, digits and underscores"
        )
    try:
        url_parameters = conninfo_to_dict(f"{match['base']}?{query}")
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"the store's URL is invalid: {_redact_error(error, query)}") from None
    parameters = _DEFAULTS | {name: str(value) for name, value in url_parameters.items() if value is not None}
    if not _PORTS.fullmatch(parameters.get("port", "")):  # a wrong port may be part of a password
        raise ConfigError("the port in the store's URL is not a number; in a password, write / as %2F")
    return PostgresAddress(parameters, schema, _redact_url(parameters, schema))


def _split_schema(query: str) -> tuple[str, str]:
    """Return the schema, and the rest of the query unchanged: libpq takes `+` literally, unlike an HTML form."""
    fields = [field for field in query.split("&") if field]
    schema_fields = [field for field in fields if unquote(field.partition("=")[0]) == "search_path"]
    schema = unquote(schema_fields[0].partition("=")[2]) if schema_fields else DEFAULT_SCHEMA
    return schema, "&".join(field for field in fields if field not in schema_fields)


def _redact_error(error: psycopg.ProgrammingError, query: str) -> str:
    """Return the error without secrets. libpq may quote the password or the whole URL; only the name of a query
    parameter is safe."""
    text = str(error).strip()
    is_harmless = text.startswith("invalid URI query parameter:") and "password" not in query
    return text if is_harmless else text.partition('"')[0].rstrip(": ")


def _redact_url(parameters: Mapping[str, str], schema: str) -> str:
    """Return a URL that can be parsed again. A socket directory or several hosts do not fit before the path, so they
    become parameters."""
    host = parameters.get("host") or parameters.get("hostaddr") or ""
    port = parameters.get("port", "")
    query = {"host": host, "port": port}
    authority = ""
    if _HOST.fullmatch(host):
        authority = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        query = {}
    if schema != DEFAULT_SCHEMA:
        query["search_path"] = schema
    rest = "&".join(f"{name}={quote(value, safe='/,@:')}" for name, value in query.items() if value)
    path = quote(parameters.get("dbname", ""), safe="")
    return f"postgresql://{authority}/{path}?{rest}" if rest else f"postgresql://{authority}/{path}"
