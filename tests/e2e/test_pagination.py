"""Pages of lists: cursors of each collection, and a list that changes while its pages are read."""

from __future__ import annotations

import json

from tests.e2e.rig import Rota


def test_next_page_continues_after_a_moved_job(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    jobs = [rota.post_job(["true"]) for _ in range(6)]
    first = rota.api("GET", "/api/jobs?limit=3").json()
    assert [job["id"] for job in first["jobs"]] == jobs[:3]
    assert rota.api("POST", f"/api/jobs/{jobs[2]}/move", {"last": True}).status == 200
    rest = rota.api("GET", f"/api/jobs?limit=10&cursor={first['next']}").json()
    assert [job["id"] for job in rest["jobs"]] == [*jobs[3:], jobs[2]]


def test_reservations_artifacts_and_breakers_are_paginated(rota_on_each_store: Rota) -> None:
    for n in range(3):
        assert rota_on_each_store.api("POST", "/api/reservations", {"name": f"s{n}"}).status == 201
        put = {"artifact": f"custom:review:{n}. a/b", "cwd": "/"}
        assert rota_on_each_store.api("POST", "/api/artifacts", put).status == 201
    assert read_pages(rota_on_each_store, "reservations", "name") == [["s0", "s1"], ["s2"]]
    names = [f"custom:review:{n}. a/b" for n in range(3)]
    assert read_pages(rota_on_each_store, "artifacts", "artifact") == [names[:2], names[2:]]
    assert [item["name"] for item in rota_on_each_store.json("reservation", "list")["reservations"]] == [
        "s0",
        "s1",
        "s2",
    ]
    assert [item["artifact"] for item in rota_on_each_store.json("artifact", "list")["artifacts"]] == names
    assert rota_on_each_store.api("GET", "/api/breakers?limit=1").json() == {"breakers": [], "next": None}
    for path in ("reservations", "artifacts", "queue", "jobs"):
        refused = rota_on_each_store.api("GET", f"/api/{path}?cursor=x")
        assert (refused.status, refused.json()["path"]) == (422, "$.cursor"), path
        assert rota_on_each_store.api("GET", f"/api/{path}?limit=0").json()["path"] == "$.limit"


def read_pages(rota: Rota, collection: str, field: str) -> list[list[str]]:
    first = rota.api("GET", f"/api/{collection}?limit=2").json()
    connection = rota.connection()
    connection.request(
        "GET", f"/api/{collection}?limit=2&cursor={first['next'].replace('/', '%2F').replace(' ', '%20')}"
    )
    second = json.loads(connection.getresponse().read())
    connection.close()
    assert second["next"] is None
    return [[item[field] for item in page[collection]] for page in (first, second)]
