"""Work items of real sources, as the scheduler reads them."""

from __future__ import annotations

import json

from tests.e2e.rig import Rota, eventually
from tests.work.town import bead, write_beads


def test_sources_are_listed_shown_and_followed(rota: Rota) -> None:
    repository, todo = rota.cwd / "town", rota.cwd / "todo.json"
    write_beads(repository, bead("gt-1"), bead("gt-2", depends=[("gt-1", "blocks")]))
    todo.write_text(json.dumps([{"id": "doc", "title": "Write docs", "depends": ["gt-1"], "target": "web"}]))
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(
        f'[sources.town]\npath = "{repository}"\n[sources.todo]\nkind = "list"\npath = "{todo}"\n'
    )
    rota.start()
    items = {item["id"]: item for item in rota.json("work", "list")["items"]}
    assert {name: (item["ready"], item["blocked_by"]) for name, item in items.items()} == {
        "gt-1": (True, []),
        "gt-2": (False, ["gt-1"]),
        "doc": (False, ["gt-1"]),
    }
    assert rota.json("work", "show", "gt-2")["reason"] == "work item gt-2 is blocked by gt-1"
    assert rota.run("work", "list", "--ready", "--source", "town").lines[1].split()[0] == "gt-1"

    write_beads(repository, bead("gt-1", status="closed"), bead("gt-2", depends=[("gt-1", "blocks")]))
    eventually(lambda: rota.json("work", "show", "gt-2")["ready"], description="gt-2 is ready")
    file = write_beads(repository, bead("gt-1"))
    file.write_text(f"{file.read_text()}not JSON\n")
    output = rota.run("work", "sync")
    assert "issues.jsonl:2" in output.err
    assert rota.run("work", "show", "gt-9", code=3).err == (
        "rota: no such work item: gt-9; `rota work list` lists all items\n"
    )


def test_changed_configuration_adds_a_source(rota: Rota) -> None:
    rota.start()
    assert rota.json("work", "list")["items"] == []
    write_beads(rota.cwd / "town", bead("gt-1"))
    (rota.home / "rota.toml").write_text(f'[sources.town]\npath = "{rota.cwd / "town"}"\n')
    [item] = eventually(lambda: rota.json("work", "list")["items"], description="the source is read")
    assert (item["source"], item["id"]) == ("town", "gt-1")
