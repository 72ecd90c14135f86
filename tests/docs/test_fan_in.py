"""The examples of `docs/fan-in.md` run as written, and give what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from queueapp.producer.discovery import registry as tasks
from queueapp.producer.flows import DEPTH_MAX
from queueapp.store.calls import MAX_JOBS_PER_CALL
from tests.working import work

PAGE = (Path(__file__).resolve().parents[2] / "docs/fan-in.md").read_text()
BLOCKS = re.findall(r"^```python\n# shop/(\w+)\.py\n(.*?)^```$", PAGE, re.S | re.M)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop() -> Iterator[SimpleNamespace]:
    known, made = dict(tasks), {}
    sys.modules["shop"] = ModuleType("shop")
    for name, text in BLOCKS:
        module = sys.modules[f"shop.{name}"] = ModuleType(f"shop.{name}")
        exec(compile(text, name, "exec"), module.__dict__)
        made[name] = module
    yield SimpleNamespace(**made)
    tasks.clear()
    tasks.update(known)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def result_of(result: Any) -> Any:
    work()
    result.refresh()
    return result.return_value


def test_every_block_is_used_here(shop: SimpleNamespace, redis_url: str) -> None:
    assert [name for name, _ in BLOCKS] == ["reports", "tolerant", "chunks"]
    assert result_of(shop.reports.order_report(2026)) == {"year": 2026, "sales": 60}
    assert result_of(shop.tolerant.order_comparison(["a", "closed", "b"])) == {"offers": ["a", "b"], "silent": 1}
    assert result_of(shop.chunks.import_file.enqueue(["x"] * 5)) == 5


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"Up to {MAX_JOBS_PER_CALL} jobs of one pool" in PAGE
    assert f"A tree has {DEPTH_MAX} levels at most" in PAGE
