"""`rota.toml`, edited manually and by commands: a configuration takes effect or is refused as a whole."""

from __future__ import annotations

import os
import signal

from tests.e2e.rig import ChildControl, Rota, eventually


def test_unknown_key_suggests_the_nearest_known_key(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text("[scheduler]\nbatchsize = 3\n")
    text = "unknown key scheduler.batchsize in rota.toml; did you mean scheduler.batch_size?"
    served = rota.run("serve", code=1)
    assert (served.out, served.err) == ("", f"rota: {text}\n")
    submitted = rota.run("submit", "--", "true", code=1)
    assert submitted.out == ""
    assert submitted.err.startswith("rota: the scheduler could not start (exit code 1)")
    assert text in submitted.err
    assert text in rota.run("doctor", code=1).out
    assert text in rota.run("config", "list", code=1).err
    assert rota.schedulers() == []
    (rota.home / "rota.toml").write_text("[scheduler]\nbatch_size = 3\n")
    assert rota.submit("--", "true") == "job-1"


def test_cgroups_can_be_turned_off(rota: Rota) -> None:
    rota.run("config", "set", "scheduler.cgroups", "off")
    rota.start()
    assert rota.status()["has_cgroups"] is False
    assert "scheduler.cgroups is off" in rota.run("doctor").out


def test_manual_edit_takes_effect_and_an_invalid_one_does_not(rota: Rota, children: ChildControl) -> None:
    scheduler = rota.start()
    for name in "abcd":
        rota.post_job(children.gated(name))
    assert children.read_lines() == ["a begins"]
    toml = rota.home / "rota.toml"
    toml.write_text("[pools]\nglobal = 2\n")
    assert children.read_lines() == ["b begins"], "without a request"
    toml.write_text("[pools]\nglobal = 3\nglobbal = 4\n")
    failure = eventually(lambda: rota.status()["errors"], description="an error in status")
    text = (
        "the configuration on disk is not in effect: unknown key pools.globbal in rota.toml; did you mean pools.global?"
    )
    assert failure == [text]
    assert f"error          {text}\n" in rota.run("status").out
    assert rota.status()["pools"]["global"]["size"] == 2
    assert children.read_available() == []
    refused = rota.run("pool", "set", "global", "5", code=1)
    assert "globbal" in refused.err
    toml.write_text("[pools]\nglobal = 3\n")
    os.kill(scheduler, signal.SIGHUP)
    assert children.read_lines() == ["c begins"], "after SIGHUP"
    assert rota.status()["errors"] == []
    toml.unlink()
    eventually(lambda: rota.status()["pools"]["global"]["size"] == 1, description="the default size")
    for name in "abcd":
        children.release(name)
    rota.wait_for_end("job-4")


def test_submit_uses_a_retry_policy_written_just_before(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    for name in ("first", "second", "third", "fourth"):
        (rota.home / "rota.toml").write_text(f"[pools]\nglobal = 0\n\n[retry.{name}]\nmax_retries = 2\n")
        rota.post_job(["true"], retry=name)


def test_reload_of_an_invalid_configuration_is_refused_with_the_error(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(2)
    toml = rota.home / "rota.toml"
    for content, output in (
        (b"[pools]\nglobbal = 4\n", "unknown key pools.globbal in rota.toml; did you mean pools.global?"),
        (b"[pools\n", "rota.toml"),
        (b"\xff = 1\n", "rota.toml"),
    ):
        toml.write_bytes(content)
        refused = rota.api("POST", "/api/scheduler/reload")
        assert (refused.status, refused.json()["code"]) == (422, "config-error"), refused
        assert output in refused.json()["detail"]
        assert rota.status()["errors"] == [f"the configuration on disk is not in effect: {refused.json()['detail']}"], (
            "the error stays visible in status"
        )
        assert rota.status()["pools"]["global"]["size"] == 2, "the previous configuration stays in effect"
        assert rota.api("PUT", "/api/pools/global", {"size": 3}).json()["code"] == "config-error"
    toml.write_text("[pools]\nglobal = 3\n")
    assert rota.api("POST", "/api/scheduler/reload").status == 200
    assert rota.status()["errors"] == []


def test_retry_of_a_job_uses_a_policy_written_just_before(rota: Rota) -> None:
    rota.start()
    (rota.home / "rota.toml").write_text('[retry.night]\nbase = "1h"\n')
    rota.post_job(["sh", "-c", "exit 1"], retry="night", retries=1)
    eventually(lambda: rota.show("job-2").get("wait"), description="a retry with the new policy")


def test_unused_signals_do_not_end_the_scheduler(rota: Rota) -> None:
    scheduler = rota.start()
    for signal_number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(scheduler, signal_number)
    rota.wait_for_end(rota.post_job(["true"]))
    assert rota.scheduler_pid == scheduler


def test_config_commands_preserve_comments_and_other_keys(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    toml = rota.home / "rota.toml"
    toml.write_text("# mine\n[scheduler]\ngrace = '1m'  # patience\n")
    rota.run("config", "set", "scheduler.kill_after", "300ms")
    assert rota.schedulers() == [], "config set needs no scheduler"
    rota.start()
    assert (
        'retry.base cannot be "-5s"; it takes a duration' in rota.run("config", "set", "retry.base", "-5s", code=2).err
    )
    rota.run("pool", "set", "global", "-1")
    rota.run("pool", "set", "flow/web", "2")
    assert rota.run("config", "get", "pools.global").out == "-1\n"
    assert rota.run("config", "get", "scheduler.kill_after").out == "300ms\n"
    text = toml.read_text()
    assert "# mine" in text
    assert "# patience" in text
    listed = rota.json("config", "list")
    assert (listed["pools.flow/web"], listed["scheduler.grace"]) == (2, "1m")
    rota.run("config", "set", "pools.global", "default")
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
        output = rota.run(*words, code=code)
        assert output.out == ""
        assert toml.read_text() == before
