"""Every row of `docs/guarantees.md` names a test that exists where the link says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "guarantees.md").read_text()
PROOFS = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", PAGE)
WITHOUT_PROOF = ["the loss of the store"]
"""Rows that promise nothing."""


@pytest.mark.parametrize(("test", "path"), PROOFS)
def test_the_test_exists(test: str, path: str) -> None:
    assert f"def {test}(" in (DOCS / path).read_text()


def test_every_promise_has_a_proof() -> None:
    rows = [row.split(" | ") for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE)[1:]]
    assert [cells[0] for cells in rows if not re.search(r"\[test_", cells[-1])] == WITHOUT_PROOF
