"""What README and docs/*.md point at is there: headings, commands with their options, settings, task options, names."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from django.conf import global_settings
from django.core.management import CommandError, get_commands, load_command_class
from django.core.management.base import BaseCommand

from flows.handle import Starter
from queueapp.producer import options
from queueapp.setting_readers import POOL_VALUES, READERS
from queueapp.store.address import SENTINEL_KEYS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text() for page in PAGES}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

CODE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OTHERS = {"rqworker"}
"""Commands of other people's apps that a page names."""
NOT_OURS = {
    *(name for name in dir(global_settings) if name.isupper()),
    *("ATOMIC_REQUESTS", "CONN_MAX_AGE", "CONN_HEALTH_CHECKS", "OPTIONS", "QUEUES", "TASKS"),  # Django's
    *("SHARED_APPS", "DEFAULT_AUTHENTICATION_CLASSES", "DEFAULT_THROTTLE_CLASSES", "COMMIT_MODE", "ASYNC"),  # others'
    *("BEHIND_PROXY", "DUCTOR_TEST_REDIS_URL", "EMAIL_URL", "HTTPS", "PROMETHEUS_MULTIPROC_DIR"),  # the environment
    *("DUCTOR", "ALL", "TRANSITIONS", "BGREWRITEAOF"),  # names in code, and of the server
}
"""What is written like a setting of ours and is none."""


class Line(NamedTuple):
    """A command as a page shows it."""

    command: str
    arguments: list[str]
    shown: str


def prose(text: str) -> str:
    return CODE.sub("", text)


def anchors(text: str) -> set[str]:
    """The headings of a page, as GitHub turns them into anchors."""
    titles = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def command_lines(text: str) -> list[Line]:
    """`manage.py …` in code and in the text; in the text also our commands without it, when more follows."""
    shown = [
        found.partition("manage.py ")[2]
        for block in CODE.findall(text)
        for found in re.findall(r"^[^#\n]*\bmanage\.py [^\n]*", block, re.MULTILINE)
    ]
    for span in SPAN.findall(prose(text)):
        if "manage.py " in span:
            shown.append(span.partition("manage.py ")[2])
        elif re.match(r"ductor [a-z]|(worker|scheduler|stack|bench) --", span):
            shown.append(span)
    lines = []
    for line in shown:
        if "|" in line or "=" in line.split()[0]:
            continue  # `ductor a|b|c` names several
        words = shlex.split(line.replace("HOST:PORT", "127.0.0.1:9100").replace("…", ""), comments=True)
        words = words[: words.index("&&")] if "&&" in words else words
        lines.append(Line(words[0], words[1:], line))
    return lines


def complaint(line: Line) -> str:
    """What the command's own parser says to it; "" when nothing."""
    apps = get_commands()
    if line.command not in apps:
        return f"there is no command {line.command}"
    app = apps[line.command]
    command = app if isinstance(app, BaseCommand) else load_command_class(app, line.command)
    try:
        command.create_parser("manage.py", line.command).parse_args(line.arguments)
    except CommandError as error:
        # A page may name a verb without what it takes.
        return "" if "the following arguments are required" in str(error) else str(error)
    return ""


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", prose(TEXTS[page])):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target.read_text()), f"{path}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    further = TEXTS[ROOT / "README.md"].split("\nFurther: ")[1]
    assert set(re.findall(r"\]\(docs/([\w.-]+)\)", further)) == {page.name for page in PAGES[1:]}


@each_page
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = {line.shown: complaint(line) for line in command_lines(TEXTS[page]) if line.command not in OTHERS}
    assert {shown: said for shown, said in wrong.items() if said} == {}


def test_commands_are_found_and_judged() -> None:
    found = command_lines(
        "`manage.py worker --slot 3`\n```sh\npython manage.py nothing  # no\n```\n`ductor jobs --state up`"
    )
    assert [line.command for line in found] == ["nothing", "worker", "ductor"]
    assert [bool(complaint(line)) for line in found] == [
        True,
        False,
        True,
    ]  # argparse takes a clear beginning of a word
    assert complaint(Line("worker", ["--nonsense"], ""))
    assert sum(len(command_lines(text)) for text in TEXTS.values()) > 60


@each_page
def test_settings_exist(page: Path) -> None:
    named = set(re.findall(r"""DUCTOR(?:\[|\.get\()["'](\w+)["']""", TEXTS[page]))
    for written in re.findall(r"DUCTOR = \{([^}]*)\}", TEXTS[page]):
        named |= set(re.findall(r"""["']([A-Z_]+)["']:""", written))
    for span in SPAN.findall(prose(TEXTS[page])):
        named |= set(re.findall(r"^([A-Z][A-Z_]*[A-Z])(?: = .*)?$", span)) - NOT_OURS
    assert named - set(READERS) - set(POOL_VALUES) - SENTINEL_KEYS == set()


@each_page
def test_options_of_tasks_exist(page: Path) -> None:
    text = re.sub(r"\{[^{}]*\}", "", TEXTS[page])
    runs = set(inspect.signature(Starter).parameters)  # `.using()` of a flow
    for place, known in (("using", {*options.USING, *runs}), ("task", options.TASK)):
        for given in re.findall(rf"(?:\.|@|@queueapp\.){place}\(((?:[^()]|\([^()]*\))*)\)", text):
            names = re.findall(r"(?:^|, )(\w+)=", re.sub(r"\([^()]*\)", "", given))
            assert set(names) <= set(known), given


@each_page
def test_what_examples_import_from_us_exists(page: Path) -> None:
    for block in CODE.findall(TEXTS[page]):
        for module, names in re.findall(r"^\s*from ((?:queueapp|flows)\b[\w.]*) import ([\w, ]+)", block, re.MULTILINE):
            for name in names.replace(" ", "").split(","):
                is_there = hasattr(import_module(module), name) or find_spec(f"{module}.{name}")
                assert is_there, f"{module}.{name}"
