"""Schemathesis against a live scheduler: it accepts what the OpenAPI document allows, refuses what it forbids,
and returns only documented responses. All checks are enabled; contract.toml gives each exception with its reason.

No generated job runs: a hold file, which no request can remove, holds every start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis.configuration import storage_directory

from rota.http.openapi.operation import TAGS
from tests.e2e.rig import Rota
from tests.sample import sample

EXAMPLES = str(sample(1))
"""Examples of each operation in each phase, besides the boundary values of its schema. 100 take an hour."""
PHASES = os.environ.get("ROTA_CONTRACT_PHASES", "examples,coverage,fuzzing,stateful")
SEED = os.environ.get("ROTA_CONTRACT_SEED", "1")
DIRECTORY = Path(__file__).parent
TAG_GROUPS = [
    ["jobs"],
    ["legacy", "health", "events", "about"],
    ["templates", "schedules", "webhooks"],
    ["scheduler", "direct", "groups", "runs", "queue", "work"],
]
"""Tags of the API that one process tests. Starting a process takes seconds."""
INITIAL_OBJECTS = [
    ("/api/jobs", {"command": ["true"], "flow": "review"}),
    ("/api/job-groups", {"name": "release"}),
    ("/api/job-templates", {"name": "story", "command": ["echo", "{hero}"], "default_params": {"hero": "a fox"}}),
    ("/api/schedules", {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}),
    ("/api/webhooks", {"url": "http://127.0.0.1:9/"}),
    ("/api/artifacts", {"artifact": "custom:review:chapter-7"}),
]


@pytest.fixture
def held_rota(make_rota: Callable[..., Rota]) -> Rota:
    """Scheduler on TCP that starts no jobs, with one object of each kind."""
    rota = make_rota()
    rota.home.mkdir()
    (rota.home / "hold").touch()
    (rota.home / "rota.toml").write_text('[scheduler]\nhold_file = "hold"\n\n[server]\nport = 0\n')
    rota.start()
    for target, body in INITIAL_OBJECTS:
        assert rota.api("POST", target, body).status == 201
    return rota


def test_every_tag_of_the_api_is_tested() -> None:
    assert sorted(tag for tags in TAG_GROUPS for tag in tags) == sorted(tag.name for tag in TAGS)


@pytest.mark.parametrize("tags", TAG_GROUPS, ids="-".join)
def test_responses_conform_to_the_document(held_rota: Rota, tags: list[str], tmp_path: Path) -> None:
    url, token = held_rota.status()["tcp"]["url"], held_rota.run("token").out.strip()
    # `python -m schemathesis` does not exist. The option names the configuration, whatever files the directory has.
    program = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    result = subprocess.run(
        [
            *program,
            "--config-file",
            DIRECTORY / "contract.toml",
            "run",
            f"{url}/openapi.json",
            "--no-color",
            "--header",
            f"Authorization: Bearer {token}",
            *(word for tag in tags for word in ("--include-tag", tag)),
            "--phases",
            PHASES,
            "--max-examples",
            EXAMPLES,
            "--seed",
            SEED,
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        # Share the stored character table of Hypothesis: computing it takes two seconds.
        env={
            **held_rota.env,
            "PYTHONPATH": str(DIRECTORY.parents[1]),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(storage_directory()),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stdout or "warning" in result.stdout, result.stdout
    assert held_rota.status()["running"] == 0, "no generated job has run"
