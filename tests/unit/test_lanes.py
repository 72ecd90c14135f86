"""A lane: which of its two queues has its least place."""

from __future__ import annotations

import pytest

from queueapp.policies.lanes import Lane


@pytest.mark.parametrize(
    ("fresh", "continued", "head"),
    [((5, 1), None, (5, 1)), (None, (5, 1), (5, 1)), ((5, 1), (3, 2), (3, 2)), ((3, 2), (5, 1), (3, 2))],
)
def test_the_head_is_the_least_of_both_queues(
    fresh: tuple[float, int] | None, continued: tuple[float, int] | None, head: tuple[float, int]
) -> None:
    lane = Lane()
    if fresh is not None:
        lane.fresh.put("a", *fresh)
    if continued is not None:
        lane.continued.put("b", *continued)
    assert lane.head() == head
