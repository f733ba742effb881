"""`rota.toml`: refused whole or taken up whole, by hand and by command."""

from __future__ import annotations

import os
import signal

from e2e.rig import Rota, Stage, eventually


def test_an_unknown_key_is_named_with_the_nearest_known_one(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text("[scheduler]\nbatchsize = 3\n")
    text = "unknown key scheduler.batchsize in rota.toml; did you mean scheduler.batch_size?"
    served = rota.ask("serve", code=1)
    assert (served.out, served.err) == ("", f"rota: {text}\n")
    submitted = rota.ask("submit", "--", "true", code=1)
    assert submitted.out == ""
    assert submitted.err.startswith("rota: the scheduler could not start (exit code 1)")
    assert text in submitted.err
    assert text in rota.ask("doctor", code=1).out
    assert text in rota.ask("config", "list", code=1).err
    assert rota.schedulers() == []
    (rota.home / "rota.toml").write_text("[scheduler]\nbatch_size = 3\n")
    assert rota.submit("--", "true") == "job-1"


def test_a_hand_edit_is_taken_up_and_a_broken_one_is_not(rota: Rota, stage: Stage) -> None:
    scheduler = rota.start()
    for name in "abcd":
        rota.post(stage.actor(name))
    assert stage.hear() == ["a begins"]
    toml = rota.home / "rota.toml"
    toml.write_text("[pools]\nglobal = 2\n")
    assert stage.hear() == ["b begins"], "by itself"
    toml.write_text("[pools]\nglobal = 3\nglobbal = 4\n")
    trouble = eventually(lambda: rota.status()["trouble"], what="trouble in status")
    text = (
        "the configuration on disk is not in force: unknown key pools.globbal in rota.toml; did you mean pools.global?"
    )
    assert trouble == [text]
    assert f"trouble        {text}\n" in rota.ask("status").out
    assert rota.status()["pools"]["global"]["size"] == 2
    assert stage.heard() == []
    refused = rota.ask("pool", "set", "global", "5", code=1)
    assert "globbal" in refused.err
    toml.write_text("[pools]\nglobal = 3\n")
    os.kill(scheduler, signal.SIGHUP)
    assert stage.hear() == ["c begins"], "asked to look"
    assert rota.status()["trouble"] == []
    toml.unlink()
    eventually(lambda: rota.status()["pools"]["global"]["size"] == 1, what="the default")
    for name in "abcd":
        stage.release(name)
    rota.ended("job-4")


def test_what_was_just_written_holds_for_what_is_submitted_after_it(rota: Rota) -> None:
    rota.start()
    rota.set_global(0)
    for name in ("first", "second", "third", "fourth"):
        (rota.home / "rota.toml").write_text(f"[pools]\nglobal = 0\n\n[retry.{name}]\nmax_retries = 2\n")
        rota.post(["true"], retry=name)


def test_a_reload_of_what_cannot_be_used_is_refused_with_its_fault(rota: Rota) -> None:
    rota.start()
    rota.set_global(2)
    toml = rota.home / "rota.toml"
    for broken, said in (
        (b"[pools]\nglobbal = 4\n", "unknown key pools.globbal in rota.toml; did you mean pools.global?"),
        (b"[pools\n", "rota.toml"),
        (b"\xff = 1\n", "rota.toml"),
    ):
        toml.write_bytes(broken)
        refused = rota.api("POST", "/api/scheduler/reload")
        assert (refused.status, refused.json()["code"]) == (422, "config-error"), refused
        assert said in refused.json()["detail"]
        assert rota.status()["trouble"] == [f"the configuration on disk is not in force: {refused.json()['detail']}"], (
            "for who looks later"
        )
        assert rota.status()["pools"]["global"]["size"] == 2, "what was in force stays so"
        assert rota.api("PUT", "/api/pools/global", {"size": 3}).json()["code"] == "config-error"
    toml.write_text("[pools]\nglobal = 3\n")
    assert rota.api("POST", "/api/scheduler/reload").status == 200
    assert rota.status()["trouble"] == []


def test_what_was_written_holds_for_what_is_submitted_after_it(rota: Rota) -> None:
    rota.start()
    (rota.home / "rota.toml").write_text('[retry.night]\nbase = "1h"\n')
    job = rota.post(["sh", "-c", "exit 1"], retry="night", retries=1)
    rota.api("GET", f"/api/jobs/{job}?wait=60&seen=QUEUED")
    eventually(lambda: rota.show("job-2").get("wait"), what="the retry of a policy that was not there a moment ago")


def test_a_signal_that_means_nothing_ends_nothing(rota: Rota) -> None:
    scheduler = rota.start()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(scheduler, number)
    rota.ended(rota.post(["true"]))
    assert rota.scheduler == scheduler


def test_commands_change_it_and_keep_what_else_is_there(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    toml = rota.home / "rota.toml"
    toml.write_text("# mine\n[scheduler]\ngrace = '1m'  # patience\n")
    rota.ask("config", "set", "scheduler.kill_after", "300ms")
    assert rota.schedulers() == [], "no scheduler is needed for that"
    rota.start()
    rota.ask("pool", "set", "global", "-1")
    rota.ask("pool", "set", "flow/web", "2")
    assert rota.ask("config", "get", "pools.global").out == "-1\n"
    assert rota.ask("config", "get", "scheduler.kill_after").out == "300ms\n"
    text = toml.read_text()
    assert "# mine" in text
    assert "# patience" in text
    listed = rota.json("config", "list")
    assert (listed["pools.flow/web"], listed["scheduler.grace"]) == (2, "1m")
    rota.ask("config", "set", "pools.global", "default")
    assert rota.status()["pools"]["global"]["size"] == 1
    for words, code in (
        (["config", "set", "scheduler.graze", "1s"], 2),
        (["config", "set", "scheduler.grace", "soon"], 2),
        (["config", "get", "nothing"], 2),
        (["pool", "set", "globl", "1"], 2),
        (["pool", "set", "global", "-2"], 2),
        (["pool", "set", "global", "many"], 2),
    ):
        before = toml.read_text()
        said = rota.ask(*words, code=code)
        assert said.out == ""
        assert toml.read_text() == before
