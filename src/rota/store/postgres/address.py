"""Where a PostgreSQL store is: `postgresql://user@host/database?search_path=rota`.

`search_path` names the schema that holds the store, so that several can share a database; every other
parameter is libpq's own. What libpq leaves to the operating system and would make a scheduler wait a quarter
of an hour for a dead server has a default here, and the URL can say otherwise.
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
_URL = re.compile(r"(?P<place>postgres(?:ql)?://(?:[^@/]*@)?(?P<rest>[^?]*))(?:\?(?P<query>.*))?", re.DOTALL)
"""As libpq reads it: a password may have a `?` in it."""
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


class Address(NamedTuple):
    parameters: Mapping[str, str]
    schema: str
    shown: str
    """For people: without the password."""

    @property
    def lock(self) -> int:
        """The key of the scheduler's advisory lock; those are per database already."""
        return int.from_bytes(sha256(f"rota:{self.schema}".encode()).digest()[:8], signed=True)

    @property
    def channel(self) -> str:
        return f"rota_{self.schema}"


def parse(url: str) -> Address:
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigError("the store's URL must start with postgresql://")
    if "@" in found["rest"]:  # half a password would be taken for a host, and shown
        raise ConfigError("the store's URL has an @ too many; in a password @ is written %40, and / is written %2F")
    schema, query = _without_schema(found["query"] or "")
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"search_path={schema} in the store's URL is not the name of one schema; "
            "use up to 48 small letters, digits and underscores"
        )
    try:
        given = conninfo_to_dict(f"{found['place']}?{query}")
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"the store's URL cannot be used: {_reason(error, query)}") from None
    parameters = _DEFAULTS | {name: str(value) for name, value in given.items() if value is not None}
    if not _PORTS.fullmatch(parameters.get("port", "")):  # what is taken for one may be half a password
        raise ConfigError("the store's URL has a port that is no number; a / in its password is written %2F")
    return Address(parameters, schema, _shown(parameters, schema))


def _without_schema(query: str) -> tuple[str, str]:
    """The schema, and the rest as it is written: libpq takes a `+` for itself, unlike a form in a browser."""
    fields = [field for field in query.split("&") if field]
    own = [field for field in fields if unquote(field.partition("=")[0]) == "search_path"]
    schema = unquote(own[0].partition("=")[2]) if own else DEFAULT_SCHEMA
    return schema, "&".join(field for field in fields if field not in own)


def _reason(error: psycopg.ProgrammingError, query: str) -> str:
    """What libpq quotes may be the password or the whole URL, and a parameter's name only where that is one."""
    text = str(error).strip()
    is_harmless = text.startswith("invalid URI query parameter:") and "password" not in query
    return text if is_harmless else text.partition('"')[0].rstrip(": ")


def _shown(parameters: Mapping[str, str], schema: str) -> str:
    """As a URL that can be read again. A directory of sockets or several hosts have no place before the path."""
    host = parameters.get("host") or parameters.get("hostaddr") or ""
    port = parameters.get("port", "")
    query = {"host": host, "port": port}
    where = ""
    if _HOST.fullmatch(host):
        where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        query = {}
    if schema != DEFAULT_SCHEMA:
        query["search_path"] = schema
    rest = "&".join(f"{name}={quote(value, safe='/,@:')}" for name, value in query.items() if value)
    path = quote(parameters.get("dbname", ""), safe="")
    return f"postgresql://{where}/{path}?{rest}" if rest else f"postgresql://{where}/{path}"
