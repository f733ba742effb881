"""The target of an item: the argument, else its own, else by prefix, else an error that lists the prefixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.config import TargetConfig
from rota.work.beads import Route
from rota.work.model import Item
from rota.work.targets import Target, TargetRefusal, make_targets, prefix_mismatch, resolve_target

TARGETS = {
    "web": Target(name="web", path=Path("/srv/web"), prefix="web-"),
    "web2": Target(name="web2", path=Path("/srv/web2"), prefix="web-admin-"),
    "rig": Target(name="rig", path=Path("/srv/rig"), prefix="rig-"),
}
ANY = {"any": Target(name="any", path=Path("/srv/any"))}
ELSEWHERE = (
    "bd-1 belongs to /srv/elsewhere by routes.jsonl, but no target has this path; add one:"
    " rota config set targets.NAME.path /srv/elsewhere"
)
ROUTES = [Route("gt-", Path("/srv/rig")), Route("bd-", Path("/srv/elsewhere"))]


def resolve(
    item_id: str, argument: str | None = None, own: str | None = None, targets: dict[str, Target] = TARGETS
) -> str:
    """Return the name of the target, or the reason of the refusal."""
    item = Item(id=item_id, source="town", title="Do it", target=own)
    result = resolve_target(item, argument, targets, ROUTES)
    return result.message if isinstance(result, TargetRefusal) else result.name


@pytest.mark.parametrize(
    ("item_id", "argument", "own", "target"),
    [
        ("web-1", "rig", "web2", "rig"),
        ("web-1", None, "web2", "web2"),
        ("web-1", None, None, "web"),
        ("web-admin-1", None, None, "web2"),
        ("gt-1", None, None, "rig"),
        ("x-1", None, None, "no target takes x-1; prefixes: web- (web), web-admin- (web2), rig- (rig)"),
        ("web-1", "wbe", None, "unknown target 'wbe'; did you mean web?"),
        ("web-1", "zzz", None, "unknown target 'zzz'; known targets: web, web2, rig"),
        ("web-1", None, "wbe", "web-1 names the unknown target 'wbe'; did you mean web?"),
        ("bd-1", None, None, ELSEWHERE),
    ],
)
def test_order_of_resolution(item_id: str, argument: str | None, own: str | None, target: str) -> None:
    assert resolve(item_id, argument, own) == target


def test_target_without_a_prefix_takes_any_item() -> None:
    assert resolve("x-1", targets={**TARGETS, **ANY}) == "any"
    assert resolve("web-1", targets={**TARGETS, **ANY}) == "web"
    assert resolve("gt-1", targets={**TARGETS, **ANY}) == "rig"
    two = {**ANY, "other": Target(name="other", path=Path("/srv/other"))}
    assert resolve("x-1", targets=two) == "x-1 fits several targets: any, other; name one of them"


def test_equal_prefixes_are_ambiguous() -> None:
    twice = {**TARGETS, "copy": Target(name="copy", path=Path("/srv/copy"), prefix="web-")}
    assert resolve("web-1", targets=twice) == "web-1 fits several targets: web, copy; name one of them"
    assert resolve("web-1", "copy", targets=twice) == "copy"


def test_without_targets_the_command_to_add_one_is_shown() -> None:
    advice = "rota config set targets.NAME.path DIRECTORY"
    assert resolve("x-1", targets={}) == f"no target takes x-1; prefixes: none; add a target: {advice}"
    assert resolve("x-1", "web", targets={}) == f"unknown target 'web'; no target is configured; add one: {advice}"


def test_coordination_items_have_no_target() -> None:
    item = Item(id="hq-1", source="town", title="Coordinate", target="web")
    for argument in (None, "web"):
        refused = resolve_target(item, argument, TARGETS)
        assert isinstance(refused, TargetRefusal)
        assert refused.is_coordination
        assert refused.message == "hq-1 is coordination, not work: items with the prefix hq- are skipped"
    own = {"hq": Target(name="hq", path=Path("/srv/hq"), prefix="hq-")}
    assert resolve("hq-1", targets=own) == "hq"


def test_prefix_of_an_item_has_to_match_the_target() -> None:
    item = Item(id="gt-1", source="town", title="Do it")
    assert prefix_mismatch(item, ANY["any"]) is None
    assert prefix_mismatch(Item(id="web-1", source="town", title=""), TARGETS["web"]) is None
    text = "gt-1 does not have the prefix web- of the target web; --force takes it anyway"
    assert prefix_mismatch(item, TARGETS["web"]) == text


def test_paths_of_targets_are_absolute_without_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    configured = {
        "a": TargetConfig(path="link", prefix="a-", max=2),
        "b": TargetConfig(path="missing/../b", base="main", template="agent", on_dispatch="make"),
    }
    targets = make_targets(configured, tmp_path)
    assert targets == {
        "a": Target(name="a", path=tmp_path / "real", prefix="a-", max=2),
        "b": Target(name="b", path=tmp_path / "b", base="main", template="agent", on_dispatch="make"),
    }
    assert targets["a"].pool == "target/a"
    item = Item(id="gt-1", source="town", title="Do it")
    assert resolve_target(item, None, targets, [Route("gt-", tmp_path / "link/../real")]) == targets["a"]
