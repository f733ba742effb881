"""The OpenAPI document against a live scheduler, by schemathesis: what the document allows is taken, what it forbids is
refused, and every answer is one that it describes. All checks are on; contract.toml names each exception, with its
reason.

Nothing that is made up here is run: a hold file, which no request can take away, lets nothing start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rota
from rota.api.openapi.tag import TAGS
from sample import sample

EXAMPLES = str(sample(1))
"""Of each operation in each phase, beside those that its schema's limits bring; a hundred take an hour."""
PHASES = os.environ.get("ROTA_CONTRACT_PHASES", "examples,coverage,fuzzing,stateful")
SEED = os.environ.get("ROTA_CONTRACT_SEED", "1")
HERE = Path(__file__).parent
TOGETHER = [
    ["jobs"],
    ["legacy", "health", "events", "about"],
    ["templates", "schedules", "webhooks"],
    ["scheduler", "direct", "groups", "runs", "queue"],
]
"""Parts of the API that are asked by one process: to start one costs seconds."""
THERE = [
    ("/api/jobs", {"command": ["true"], "flow": "review"}),
    ("/api/job-groups", {"name": "release"}),
    ("/api/job-templates", {"name": "story", "command": ["echo", "{hero}"], "default_params": {"hero": "a fox"}}),
    ("/api/schedules", {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}),
    ("/api/webhooks", {"url": "http://127.0.0.1:9/"}),
    ("/api/artifacts", {"artifact": "custom:review:chapter-7"}),
]


@pytest.fixture
def held(make_rota: Callable[..., Rota]) -> Rota:
    """A scheduler on TCP that starts nothing, with something of everything in it."""
    rota = make_rota()
    rota.home.mkdir()
    (rota.home / "hold").touch()
    (rota.home / "rota.toml").write_text('[scheduler]\nhold_file = "hold"\n\n[server]\nport = 0\n')
    rota.start()
    for target, body in THERE:
        assert rota.api("POST", target, body).status == 201
    return rota


def test_every_part_of_the_api_is_asked() -> None:
    assert sorted(tag for tags in TOGETHER for tag in tags) == sorted(tag.name for tag in TAGS)


@pytest.mark.parametrize("tags", TOGETHER, ids="-".join)
def test_the_document_is_kept_to(held: Rota, tags: list[str], tmp_path: Path) -> None:
    url, token = held.status()["tcp"]["url"], held.ask("token").out.strip()
    # `python -m` would ask for a module that is not there; the configuration is the one named, whatever lies around.
    program = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    asked = subprocess.run(
        [
            *program, "--config-file", HERE / "contract.toml", "run", f"{url}/openapi.json", "--no-color",
            "--header", f"Authorization: Bearer {token}", *(word for tag in tags for word in ("--include-tag", tag)),
            "--phases", PHASES, "--max-examples", EXAMPLES, "--seed", SEED,
        ],
        cwd=tmp_path, env={**held.env, "PYTHONPATH": str(HERE.parent)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "No issues found" in asked.stdout or "warning" in asked.stdout, asked.stdout
    assert held.status()["running"] == 0, "nothing that was made up has run"
