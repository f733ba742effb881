"""Check and report the shape of the code base: names, docstrings, words, and how far apart things are.

python tools/shape.py          print every figure, and fail if one is over its limit
python tools/shape.py --all    print every place that is over a limit
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WORDS = ROOT / "tools" / "words.toml"
CHECKED_SUFFIXES = (".py", ".sql", ".md", ".toml", ".sh", ".yaml")
NOT_CHECKED = ("tools/words.toml", "tools/shape.py")
MAX_BASES = 6
MAX_SHOWN = 20
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
RIDDLE = re.compile(r"(what|who|whom|whose|whoever|it|one|those|all that|nothing|nobody)\b", re.IGNORECASE)
"""Words that no docstring starts with."""


class Figure(NamedTuple):
    """One measurement; `places` are where it comes from, and `limit` is None if it is only reported."""

    name: str
    value: int
    limit: int | None = None
    places: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.value > self.limit


class Module(NamedTuple):
    path: str
    tree: ast.Module


def tracked_files() -> list[str]:
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


def parse_modules(paths: list[str]) -> list[Module]:
    return [Module(path, ast.parse((ROOT / path).read_text())) for path in paths if path.endswith(".py")]


def ambiguous_classes(source: list[Module]) -> Figure:
    """Count public module-level class names that more than one module defines."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module in source:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(f"{module.path}:{node.lineno}")
    ambiguous = {name: places for name, places in modules.items() if len(places) > 1}
    places = tuple(f"{name}: {', '.join(places)}" for name, places in sorted(ambiguous.items()))
    return Figure("class names with two meanings", len(ambiguous), 0, places)


def documented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, of fields and constants too."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for before, statement in zip([None, *body], body, strict=False):
            is_first = before is None and isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            )
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if is_first or isinstance(
                    before, ast.Assign | ast.AnnAssign
                ):
                    yield statement.lineno, text


def riddles(source: list[Module]) -> Figure:
    """Count docstrings that start with a pronoun instead of a noun or a verb."""
    places = tuple(
        f"{module.path}:{line}: {text.splitlines()[0][:80]}"
        for module in source
        for line, text in documented(module.tree)
        if RIDDLE.match(text)
    )
    return Figure("docstrings that start with what, who, it", len(places), 0, places)


def read_words(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z])(?:{'|'.join(map(word_pattern, words))})(?![A-Za-z])", re.IGNORECASE)


def word_pattern(word: str) -> str:
    suffix = r"\w*" if word.endswith("*") else ""
    return re.escape(word.removesuffix("*")).replace(r"\ ", r"\s+") + suffix


def old_words(paths: list[str]) -> Figure:
    """Count the lines with a word of the list, in source, tests, docs and SQL."""
    rules = tomllib.loads(WORDS.read_text())
    exceptions = rules["exceptions"]
    patterns = {path: read_words(rules["words"].keys() - set(words)) for path, words in exceptions.items()}
    pattern_of_others = read_words(rules["words"])
    places = []
    for path in paths:
        if path in NOT_CHECKED or not path.endswith(CHECKED_SUFFIXES):
            continue
        pattern = patterns.get(path, pattern_of_others)
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if found := pattern.search(line):
                places.append(f"{path}:{number}: {found.group()}")
    return Figure("words of the old dialect", len(places), 0, tuple(places))


def widest_class(source: list[Module]) -> Figure:
    """Return the largest number of bases that one class lists."""
    classes = [
        (len(node.bases), f"{module.path}:{node.lineno} {node.name}")
        for module in source
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    bases, place = max(classes)
    return Figure("bases of one class", bases, MAX_BASES, (place,))


def packages_of(source: list[Module], noun: str) -> Figure:
    """Count the packages that have a file named after the noun."""
    named = [module.path for module in source if noun in Path(module.path).name or noun in Path(module.path).parts[2]]
    packages = sorted({Path(path).parts[2] for path in named})
    return Figure(f"packages with a file named {noun}", len(packages), 2, tuple(packages))


def spelling_files(source: list[Module], field: str) -> Figure:
    places = tuple(module.path for module in source if re.search(rf"\b{field}\b", (ROOT / module.path).read_text()))
    return Figure(f"files that spell {field}", len(places))


def measure() -> list[Figure]:
    paths = tracked_files()
    source = parse_modules([path for path in paths if path.startswith("src/")])
    lines = sum((ROOT / module.path).read_text().count("\n") for module in source)
    return [
        ambiguous_classes(source),
        riddles(source),
        old_words(paths),
        widest_class(source),
        packages_of(source, "webhook"),
        Figure("source files", len(source)),
        Figure("source lines", lines),
        spelling_files(source, "skip_if"),
        spelling_files(source, "idle_timeout"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print every place")
    options = parser.parse_args()
    figures = measure()
    for figure in figures:
        limit = "" if figure.limit is None else f" (at most {figure.limit})"
        print(f"{figure.value:7,}  {figure.name}{limit}")
    failed = [figure for figure in figures if figure.is_over]
    for figure in failed:
        print(f"\n{figure.name}: {figure.value}", file=sys.stderr)
        shown = figure.places if options.all else figure.places[:MAX_SHOWN]
        print("\n".join(f"  {place}" for place in shown), file=sys.stderr)
        if len(figure.places) > len(shown):
            print(f"  and {len(figure.places) - len(shown)} more; --all prints them", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
