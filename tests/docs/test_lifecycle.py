"""`docs/lifecycle.md` draws `TRANSITIONS`: the table row by row, the picture letter by letter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from queueapp.states import INDEX, TRANSITIONS, State

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/lifecycle.md").read_text()
PICTURE = "\n\n".join(PAGE.split("```")[1::2])
"""The life of a job, and what scheduled dispatch and the front door add to it."""
LETTER = "[a-zA-Z1-9α-ω①-⑳]"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of transitions."""

    letter: str
    script: str
    link: str
    source: str
    target: str
    outcome: str


ROWS = [
    Row(*(cell.strip() for cell in match.groups()))
    for match in re.finditer(
        rf"^\| ({LETTER}) \| \[(\w+)\]\(([^)]+)\) \| (\w+) \| (\w+) \| (\w*) ?\| [^|]+ \|$", PAGE, re.MULTILINE
    )
]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_table_is_the_table_of_the_code() -> None:
    documented = [(row.script, row.source, row.target, row.outcome) for row in ROWS]
    in_force = [
        (
            transition.script,
            transition.source.value if transition.source else "new",
            transition.target.value,
            transition.outcome.value if transition.outcome else "",
        )
        for transition in TRANSITIONS
    ]
    assert sorted(documented) == sorted(in_force)


def test_the_picture_has_each_arrow_once_and_each_state() -> None:
    assert sorted(re.findall(rf"\[({LETTER})\]", PICTURE)) == sorted(row.letter for row in ROWS)
    for state in State:
        assert re.search(rf"│\s+{state.value}\s", PICTURE), state


def test_arrows_of_the_picture_that_share_a_line_share_their_states() -> None:
    """Letters side by side are one arrow: they lead from the same state to the same state."""
    ends = {row.letter: (row.source, row.target) for row in ROWS}
    for group in re.findall(rf"(?:\[{LETTER}\])+", PICTURE):
        letters = re.findall(LETTER, group)
        if group == "[r][t][d][g][p]":  # three arrows that lie close: down to dead, up from dead, down to ended
            letters = ["d", "g", "p"]
            assert ends["r"] == ("pending", "dead")
            assert ends["t"] == ("dead", "pending")
        assert len({ends[letter] for letter in letters}) == 1, group


def test_every_state_has_its_index() -> None:
    found = dict(re.findall(r"^\| (\w+) \| `(\w+)`", section("The states"), re.MULTILINE))
    assert found == {state.value: index for state, index in INDEX.items()}


def test_at_most_eight_files_lead_from_enqueue_to_the_result() -> None:
    files = re.findall(r"^\d+\. \[([^\]]+)\]\(([^)]+)\)", section("Follow one job through the code"), re.MULTILINE)
    assert 1 <= len(files) <= 8
    assert all(link == f"../{name}" for name, link in files)


def test_the_glossary_is_short() -> None:
    words = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", section("Words").split("|---|---|\n")[1], re.MULTILINE)
    assert len(words) > 10
    for word, meaning in words:
        assert len(meaning.split()) <= 20, word
