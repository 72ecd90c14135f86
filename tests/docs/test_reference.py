"""`docs/reference.md` names every setting, command and refusal, and nothing that does not exist."""

from __future__ import annotations

import ast
import re
from argparse import _SubParsersAction
from pathlib import Path

from django.core.management import load_command_class

from queueapp.errors import REFUSALS
from queueapp.models import Pool
from queueapp.producer import options
from queueapp.setting_readers import POOL_VALUES, READERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference.md").read_text()

VERBS = "What `manage.py ductor` can do:"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_setting_is_documented() -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", section("Settings"), re.MULTILINE)) == set(READERS)


def test_every_option_is_documented_with_its_place() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Options of `@task` and `.using()`"), re.MULTILINE))
    assert {name for name, place in rows.items() if place in {"task", "both"}} == set(options.TASK)
    assert {name for name, place in rows.items() if place in {"using", "both"}} == set(options.USING)


def test_every_value_of_a_pool_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| [^|`]+ \| `([A-Z_]+)` \| `?([^|`]+?)`? \|", section("Pools"), re.MULTILINE)
    assert [name for name, _ in rows] == list(dict(rows))
    assert set(dict(rows)) == set(POOL_VALUES)
    for name, default in rows:
        assert ast.literal_eval(default) == getattr(Pool(), name.lower()), name
    [policies] = re.findall(r"Which job runs next\]\(policies.md\): (.*)\. \|", section("Pools"))
    assert re.findall(r"`(\w+)`", policies) == Pool.Policy.values


def test_every_command_is_documented() -> None:
    modules = (ROOT / "queueapp/management/commands").glob("[!_]*.py")
    table = section("Commands").partition(VERBS)[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    named = {name.removeprefix("manage.py ") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert named == {module.stem for module in modules}


def test_every_verb_of_ductor_is_documented() -> None:
    parser = load_command_class("queueapp", "ductor").create_parser("manage.py", "ductor")
    [verbs] = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    table = section("Commands").partition(VERBS)[2]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(verbs.choices)


def test_every_refusal_is_documented_with_its_exception() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section("Refusals of the store"), re.MULTILINE)
    assert dict(rows) == {code: error.__name__ for code, error in REFUSALS.items()}


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = re.findall(r"^(\d+)\. \*\*", (ROOT / "docs/decisions.md").read_text(), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def test_the_first_screen_of_the_readme_uses_few_words() -> None:
    """Whoever reads it first knows none of ours: these are for later pages."""
    screen = (ROOT / "README.md").read_text().split("## Questions")[0].lower()
    for word in ("shard", "lane", "tier ", "lease", "fence", "epoch", "slot", "cycle", "leader"):
        assert not re.search(rf"\b{word.strip()}s?\b", screen), word
