"""`docs/operations.md` names every kind of reason that `why` gives, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from queueapp.inspection.explain import LOOKS, WALKED
from queueapp.inspection.reason import Kind

PAGE = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()


def test_every_kind_of_reason_is_in_the_table() -> None:
    section = PAGE.split("## Why does this job not run?\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
    assert {kind for cell in cells for kind in re.findall(r"`(\w+)`", cell)} == {kind.value for kind in Kind}
    assert f"(in about {LOOKS:,} steps)" in section
    assert f"for up to {WALKED} jobs" in section
