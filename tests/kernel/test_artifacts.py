"""Artifacts: notation, and every combination of producer states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidInput
from rota.kernel.artifacts import (
    ARTIFACT_TYPES,
    MAX_ARTIFACT_BYTES,
    Artifact,
    decode_artifact,
    is_branch_name,
    parse_artifact,
)
from rota.kernel.facts import BranchHead, Fact, FactValue, FileExists
from rota.kernel.gates import ARTIFACTS
from rota.kernel.status import ACTIVE, STARTED, TERMINAL, Status
from rota.kernel.verdict import PASS, Block, Undecided, Verdict, Wait, WaitKind
from rota.naming import has_line_break
from tests.kernel.factories import candidate, gate_context, need

FAILURES = sorted(TERMINAL - {Status.COMPLETED, Status.SKIPPED})
MISSING: dict[Fact, FactValue] = {FileExists("/a"): False, BranchHead("/repo/.git", "main"): None}
PRESENT: dict[Fact, FactValue] = {FileExists("/a"): True, BranchHead("/repo/.git", "main"): "1" * 40}


def judge(*needs: object, observed: dict[Fact, FactValue]) -> Verdict:
    return ARTIFACTS.judge(candidate(needs=needs), gate_context(observed=observed))


def waits(text: str, name: str) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS, kind=WaitKind.DEPENDENCIES, detail=f"{text} {name}", on=(f"artifact:{name}",)
    )


@pytest.mark.parametrize("name", ["file:/a", "target_branch:main"])
class TestTable:
    """One test for each row of the producer table."""

    @pytest.mark.parametrize("status", [None, *sorted(set(Status) - STARTED)])
    def test_present_artifact_passes_with_any_idle_producer(self, name: str, status: Status | None) -> None:
        assert judge(need(name, *([] if status is None else [status])), observed=PRESENT) is PASS

    @pytest.mark.parametrize("status", sorted(ACTIVE))
    @pytest.mark.parametrize("other", [None, *sorted(TERMINAL)])
    def test_missing_artifact_with_active_producer_waits(self, name: str, status: Status, other: Status | None) -> None:
        producers = [status] if other is None else [other, status]
        assert judge(need(name, *producers), observed=MISSING) == waits("waiting on", name)

    def test_missing_artifact_without_producer_follows_policy(self, name: str) -> None:
        assert judge(need(name), observed=MISSING) == Block(detail=f"missing {name}")
        assert judge(need(name, may_wait=True), observed=MISSING) == waits("awaiting producer for", name)

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.SKIPPED])
    @pytest.mark.parametrize("may_wait", [False, True])
    def test_missing_artifact_blocks_if_a_producer_succeeded(
        self, name: str, status: Status, *, may_wait: bool
    ) -> None:
        needed = need(name, Status.FAILED, status, may_wait=may_wait)
        assert judge(needed, observed=MISSING) == Block(detail=f"missing {name}")

    @pytest.mark.parametrize("status", FAILURES)
    @pytest.mark.parametrize("may_wait", [False, True])
    def test_missing_artifact_blocks_if_all_producers_failed(
        self, name: str, status: Status, *, may_wait: bool
    ) -> None:
        needed = need(name, status, Status.FAILED, may_wait=may_wait)
        assert judge(needed, observed=MISSING) == Block(detail=f"dependency failed for {name}")

    def test_unprobed_artifact_is_undecided(self, name: str) -> None:
        verdict = judge(need(name), observed={})
        assert isinstance(verdict, Undecided)
        assert verdict.facts

    def test_artifact_of_rewound_producer_counts_as_missing(self, name: str) -> None:
        needed = need(name, Status.QUEUED, is_rewound=True)
        assert judge(needed, observed=PRESENT) == waits("waiting on", name)


@pytest.mark.parametrize("status", sorted(STARTED))
def test_running_producer_hides_files_but_not_branches(status: Status) -> None:
    assert judge(need("file:/a", status), observed=PRESENT) == waits("waiting on", "file:/a")
    assert judge(need("custom:t:k", status, is_declared=True), observed={}) == waits("waiting on", "custom:t:k")
    assert judge(need("target_branch:main", status), observed=PRESENT) is PASS


def test_first_unmet_need_gives_the_verdict() -> None:
    waiting, missing = need("file:/a", Status.QUEUED), need("target_branch:main")
    assert judge(waiting, missing, observed=MISSING) == waits("waiting on", "file:/a")
    assert judge(missing, waiting, observed=MISSING) == Block(detail="missing target_branch:main")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plan_doc",
        "plan_doc:",
        "plan_doc:a b",
        "plan_doc:a (",
        "plan_doc:a ()",
        "plan_doc:../x",
        "plan_doc:a (-x)",
        "target_branch:",
        "target_branch:a..b",
        "target_branch:a b",
        "target_branch:-x",
        "target_branch:x.lock",
        "merge_sentinel:../x",
        "merge_sentinel:",
        "command_patch:",
        "command_patch:7",
        "command_patch:run-7",
        "file:",
        "custom:x",
        "custom:x:",
        "custom::k",
        "custom:x: k",
        "custom:x:a\nb",
        "file:/a\x00b",
        "unknown:x",
        "Custom:x:y",
        f"file:/{'x' * MAX_ARTIFACT_BYTES}",
        f"custom:t:{'ä' * 600}",
    ],
)
def test_malformed_artifact_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_artifact(text)


def test_artifact_with_too_long_absolute_path_is_refused() -> None:
    assert parse_artifact(f"file:{'x' * 600}", cwd="/short")
    with pytest.raises(InvalidInput, match="artifact too long"):
        parse_artifact(f"file:{'x' * 600}", cwd=f"/{'y' * 600}")


slugs = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,5}(\.[A-Za-z0-9_-]{1,3})?", fullmatch=True).filter(is_branch_name)
branches = st.text("ab/-._ä()", min_size=1, max_size=12).filter(is_branch_name)
_characters = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
paths = st.text(_characters, min_size=1, max_size=30).filter(lambda path: not has_line_break(path))
texts = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(["plan_doc", "plan_branch", "plan_commits", "merge_sentinel"]), slugs),
    st.builds("plan_doc:{} ({})".format, slugs, branches.filter(lambda name: "(" not in name and ")" not in name)),
    st.builds("target_branch:{}".format, branches),
    st.builds("command_patch:job-{}".format, st.integers(1, 10**9)),
    st.builds("file:{}".format, paths),
    st.builds("custom:{}:{}".format, slugs, slugs),
)


@given(texts)
def test_stored_artifact_round_trips(text: str) -> None:
    artifact = parse_artifact(text, cwd="/some/where")
    assert decode_artifact(str(artifact)) == artifact
    assert parse_artifact(str(artifact)) == artifact


@given(st.text())
def test_any_stored_text_decodes(text: str) -> None:
    assert isinstance(decode_artifact(text), Artifact)
    assert decode_artifact(text).type in ARTIFACT_TYPES
