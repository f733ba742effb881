"""Artifacts: how they are written, and every cell of the table of producers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import facts, need, standing
from rota.core.artifact import MOST_BYTES, TYPES, Artifact, decode_artifact, is_branch, parse_artifact
from rota.core.fact import Fact, File, Head, Seen
from rota.core.gate import ARTIFACTS
from rota.core.status import ACTIVE, STARTED, TERMINAL, Status
from rota.core.verdict import PASS, Block, Unknown, Verdict, Wait
from rota.core.wait import WaitKind
from rota.errors import InvalidInput

FAILURES = sorted(TERMINAL - {Status.COMPLETED, Status.SKIPPED})
MISSING: dict[Fact, Seen] = {File("/a"): False, Head("/repo/.git", "main"): None}
THERE: dict[Fact, Seen] = {File("/a"): True, Head("/repo/.git", "main"): "1" * 40}


def judge(*needs: object, seen: dict[Fact, Seen]) -> Verdict:
    return ARTIFACTS.judge(standing(needs=needs), facts(seen=seen))


def waits(text: str, name: str) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS, kind=WaitKind.DEPENDENCIES, detail=f"{text} {name}", on=(f"artifact:{name}",)
    )


@pytest.mark.parametrize("name", ["file:/a", "target_branch:main"])
class TestTable:
    """DESIGN §3, cell by cell."""

    @pytest.mark.parametrize("status", [None, *sorted(set(Status) - STARTED)])
    def test_present_passes_whatever_its_producer_did(self, name: str, status: Status | None) -> None:
        assert judge(need(name, *([] if status is None else [status])), seen=THERE) is PASS

    @pytest.mark.parametrize("status", sorted(ACTIVE))
    @pytest.mark.parametrize("other", [None, *sorted(TERMINAL)])
    def test_missing_with_an_active_producer_waits(self, name: str, status: Status, other: Status | None) -> None:
        producers = [status] if other is None else [other, status]
        assert judge(need(name, *producers), seen=MISSING) == waits("waiting on", name)

    def test_missing_without_a_producer_is_blocked_or_waits(self, name: str) -> None:
        assert judge(need(name), seen=MISSING) == Block(detail=f"missing {name}")
        assert judge(need(name, may_wait=True), seen=MISSING) == waits("awaiting producer for", name)

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.SKIPPED])
    @pytest.mark.parametrize("may_wait", [False, True])
    def test_missing_though_one_succeeded_is_blocked(self, name: str, status: Status, *, may_wait: bool) -> None:
        wanted = need(name, Status.FAILED, status, may_wait=may_wait)
        assert judge(wanted, seen=MISSING) == Block(detail=f"missing {name}")

    @pytest.mark.parametrize("status", FAILURES)
    @pytest.mark.parametrize("may_wait", [False, True])
    def test_missing_and_all_failed_is_blocked(self, name: str, status: Status, *, may_wait: bool) -> None:
        wanted = need(name, status, Status.FAILED, may_wait=may_wait)
        assert judge(wanted, seen=MISSING) == Block(detail=f"dependency failed for {name}")

    def test_what_nobody_has_looked_at_is_not_decided(self, name: str) -> None:
        verdict = judge(need(name), seen={})
        assert isinstance(verdict, Unknown)
        assert verdict.facts

    def test_what_a_rewound_producer_made_is_missing_until_it_ends_again(self, name: str) -> None:
        wanted = need(name, Status.QUEUED, is_rewound=True)
        assert judge(wanted, seen=THERE) == waits("waiting on", name)


@pytest.mark.parametrize("status", sorted(STARTED))
def test_a_file_is_not_there_while_somebody_writes_it_and_a_branch_is(status: Status) -> None:
    assert judge(need("file:/a", status), seen=THERE) == waits("waiting on", "file:/a")
    assert judge(need("custom:t:k", status, is_declared=True), seen={}) == waits("waiting on", "custom:t:k")
    assert judge(need("target_branch:main", status), seen=THERE) is PASS


def test_the_first_that_is_not_there_speaks() -> None:
    waiting, missing = need("file:/a", Status.QUEUED), need("target_branch:main")
    assert judge(waiting, missing, seen=MISSING) == waits("waiting on", "file:/a")
    assert judge(missing, waiting, seen=MISSING) == Block(detail="missing target_branch:main")


@pytest.mark.parametrize(
    "text",
    [
        "", "plan_doc", "plan_doc:", "plan_doc:a b", "plan_doc:a (", "plan_doc:a ()", "plan_doc:../x",
        "plan_doc:a (-x)",
        "target_branch:", "target_branch:a..b", "target_branch:a b", "target_branch:-x", "target_branch:x.lock",
        "merge_sentinel:../x", "merge_sentinel:", "command_patch:", "command_patch:7", "command_patch:run-7", "file:",
        "custom:x", "custom:x:", "custom::k", "custom:x: k", "custom:x:a\nb", "file:/a\x00b", "unknown:x", "Custom:x:y",
        f"file:/{'x' * MOST_BYTES}", f"custom:t:{'ä' * 600}",
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_artifact(text)


def test_a_path_that_grows_too_long_when_it_is_made_absolute_is_refused() -> None:
    assert parse_artifact(f"file:{'x' * 600}", cwd="/short")
    with pytest.raises(InvalidInput, match="artifact too long"):
        parse_artifact(f"file:{'x' * 600}", cwd=f"/{'y' * 600}")


slugs = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,5}(\.[A-Za-z0-9_-]{1,3})?", fullmatch=True).filter(is_branch)
branches = st.text("ab/-._ä()", min_size=1, max_size=12).filter(is_branch)
paths = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=30)
texts = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(["plan_doc", "plan_branch", "plan_commits", "merge_sentinel"]), slugs),
    st.builds("plan_doc:{} ({})".format, slugs, branches.filter(lambda name: "(" not in name and ")" not in name)),
    st.builds("target_branch:{}".format, branches),
    st.builds("command_patch:job-{}".format, st.integers(1, 10**9)),
    st.builds("file:{}".format, paths),
    st.builds("custom:{}:{}".format, slugs, slugs),
)


@given(texts)
def test_what_is_stored_is_read_back(text: str) -> None:
    artifact = parse_artifact(text, cwd="/some/where")
    assert decode_artifact(str(artifact)) == artifact
    assert parse_artifact(str(artifact)) == artifact


@given(st.text())
def test_whatever_is_in_the_store_can_be_read(text: str) -> None:
    assert isinstance(decode_artifact(text), Artifact)
    assert decode_artifact(text).type in TYPES
