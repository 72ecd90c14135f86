"""What CONTRIBUTING.md asks of the layout, as far as a machine can tell."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_module_is_longer_than_the_house_allows() -> None:
    """Longer ones are cut by what they own, so that each part is found by its name. Django writes the migrations."""
    asked = re.search(r"A module has\s+about \d+ lines, (\d+) at most", (ROOT / "CONTRIBUTING.md").read_text())
    assert asked is not None
    modules = [path for top in ("queueapp", "flows", "tests") for path in (ROOT / top).rglob("*.py")]
    assert len(modules) > 500
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in modules
        if "migrations" not in path.parts
    }
    assert {name: length for name, length in lengths.items() if length > int(asked[1])} == {}
