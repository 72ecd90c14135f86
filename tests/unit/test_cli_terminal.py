"""What a terminal shows is broken between words and below its own column; what goes to a file is left as it is."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace

import pytest

from queueapp.cli import doctor, fsck, status
from queueapp.cli.table import columns, fits, prose, table
from queueapp.inspection.fsck import Checked, Finding
from queueapp.inspection.overview import pool_status
from queueapp.store.fitness import Remark
from queueapp.store.store import Store

SENTENCE = "No scheduler runs. Workers still promote due jobs and recover those of lost workers; nobody sends mails."
REMARKS = [
    Remark(check="settings", level="well", text="The system checks find nothing."),
    Remark(check="pool " + "p" * 64, level="warning", text=SENTENCE),
    Remark(check="eviction", level="error", text=SENTENCE, remedy="Set `maxmemory-policy noeviction`."),
    Remark(check="replicas", level="unknown", text="min-replicas-to-write could \x1b[31mnot be read."),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A terminal of so many columns."""
    found: int = request.param
    monkeypatch.setattr("queueapp.cli.table.columns", lambda: found)
    monkeypatch.setenv("COLUMNS", str(found))  # rich looks there
    return found


def plain(text: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]


def test_prose_is_broken_between_words(width: int) -> None:
    lines = prose(f"{SENTENCE}\n\nshort").splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines[:-2]) == SENTENCE
    assert lines[-2:] == ["", "short"]


def test_the_last_column_goes_on_below_itself(width: int) -> None:
    lines = table(
        ("", "kind", "what"), [("mended", "sum", SENTENCE), ("by hand", "lost", "x")], wraps=True
    ).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(line[15:] for line in lines[1:-1]) == SENTENCE
    assert {line[:15].strip() for line in lines[2:-1]} <= {""}
    assert lines[-1] == "by hand  lost  x"


def test_a_word_that_is_too_long_is_broken_and_what_is_narrow_has_some_room(width: int) -> None:
    lines = table(("of", "what"), [("o" * (width - 5), "w" * 100)], wraps=True).splitlines()
    assert [len(line) for line in lines[1:]] == [width - 5 + 2 + 24] * 4 + [width - 5 + 2 + 4]


def test_a_file_takes_every_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert columns() == 80
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert columns() is None
    assert prose(SENTENCE * 9) == SENTENCE * 9
    assert fits(SENTENCE * 9)
    assert len(table(("what",), [(SENTENCE * 9,)], wraps=True).splitlines()) == 2


@pytest.mark.parametrize("colour", [True, False])
def test_the_doctor_s_table(width: int, colour: bool) -> None:
    """The worst first; a remedy below what it is for; nothing over the edge."""
    text = doctor._rich(REMARKS, colour=colour)
    assert text is not None
    lines = plain(text)
    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["ERROR", "WARNING", "could", "ok"]
    said = " ".join(line[19 + 24 + 2 :].strip() for line in lines)
    assert said.startswith(f"{SENTENCE} → Set `maxmemory-policy noeviction`. {SENTENCE} ")
    assert sum(line[45:].startswith("→") for line in lines) == 1
    assert "\x1b[31mnot" not in text
    assert ("\x1b[33m" in text) == colour


@pytest.mark.django_db
def test_status_has_two_tables_where_one_is_too_wide(width: int, store: Store) -> None:
    seen = replace(pool_status("default"), policy="edf", rule="edf by latest_start", leader="stack-12345.0123ab")
    text = status._pools([seen])
    assert fits(text)
    assert text.count("default") == text.count("pool") == (2 if width == 80 else 1)
    for fact in ("edf by latest_start", "stack-12345.0123ab", "longest wait"):
        assert fact in text
    told = status._details(seen)
    assert fits(told)
    assert "Start `manage.py scheduler`." in told.replace("\n", " ")


def test_findings_of_fsck(width: int) -> None:
    finding = Finding(kind="member", name="x" * 22, what=SENTENCE, state="mendable", remedy=f"Look. {SENTENCE}")
    lines = list(fsck._lines(Checked(pool="default", looked_at=5, findings=(finding,), settled=False)))
    assert all(map(fits, lines))
    assert "can be mended" in lines[1]


@pytest.mark.django_db
def test_json_is_never_broken(width: int, store: Store) -> None:
    text, _ = status.status(["default"], json=True)
    assert "\n".join(line for line in text.splitlines() if not fits(line)) or width == 120
    assert json.loads(text)[0]["pool"] == "default"
