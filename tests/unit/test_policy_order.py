"""The order of each policy is the same in every process: nothing of it hangs on the order of a set or on a hash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queueapp.policies.registry import POLICIES
from tests.unit import seeded_traffic
from tests.unit.seeded_traffic import levels_of, order_of

ROOT = Path(__file__).resolve().parents[2]
HASH_SEEDS = range(1, 11)


@pytest.fixture(scope="module")
def elsewhere() -> list[dict[str, Any]]:
    """What ten processes with ten hash seeds say: for each policy its two orders."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", seeded_traffic.__name__],
            cwd=ROOT,
            env={"PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started)
    return [json.loads(one) for one in said]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_c065_every_process_orders_alike(policy: str, elsewhere: list[dict[str, Any]]) -> None:
    """C065: an unordered collection shuffles the order from process to process."""
    order, levels = order_of(policy), levels_of(policy)
    assert len(order) > seeded_traffic.JOBS * 0.9
    assert [said[policy] for said in elsewhere] == [[order, levels]] * len(HASH_SEEDS)


def test_c065_priorities_run_from_high_to_low() -> None:
    """C065: the configured order, every time."""
    assert levels_of("priority") == [100, 50, 0, -50, -100]
