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
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.errors import ConfigError

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "rota"
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
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError("the store's URL must start with postgresql://")
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in query if name == "search_path"), DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"search_path={schema} in the store's URL is not the name of one schema; "
            "use up to 48 small letters, digits and underscores"
        )
    rest = urlencode([(name, value) for name, value in query if name != "search_path"])
    try:
        given = conninfo_to_dict(urlunsplit(parts._replace(query=rest)))
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"the store's URL cannot be used: {str(error).strip()}") from None
    parameters = _DEFAULTS | {name: str(value) for name, value in given.items() if value is not None}
    return Address(parameters, schema, _shown(parameters, schema))


def _shown(parameters: Mapping[str, str], schema: str) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or ""
    port = f":{parameters['port']}" if "port" in parameters else ""
    where = f"{host}{port}/{parameters.get('dbname', '')}"
    return f"postgresql://{where}" if schema == DEFAULT_SCHEMA else f"postgresql://{where}?search_path={schema}"
