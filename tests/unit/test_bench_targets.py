"""What is made of the figures of Ductor and other queues: rows, verdicts on the targets, the table."""

from __future__ import annotations

import pytest

from queueapp.bench.peers import table, targets
from queueapp.bench.peers.results import Results, Row, best, drain_name, share_name
from queueapp.bench.peers.roster import OURS, PEERS


def test_of_two_variants_the_better_one_counts_for_each_figure() -> None:
    threads = {"drain_per_s": 400.0, "bytes_per_job": 90.0, "start_ms_p50": 1.0, "start_ms_p99": 9.0}
    processes = {"drain_per_s": 600.0, "bytes_per_job": 80.0, "start_ms_p50": 2.0, "start_ms_p99": 3.0}
    assert best([threads, processes]) == {**threads, "drain_per_s": 600.0, "bytes_per_job": 80.0}


def test_a_row_has_medians_versions_and_shares_of_what_slots_allow() -> None:
    three = [PEERS[OURS], PEERS["celery"], PEERS["huey"]]
    versions = {OURS: "0.1", "celery": "5.7"}
    results = Results(aof="on", peers=three, versions=versions, unavailable={"huey": "no network"})
    values = [{drain_name(5): 3_000.0}, {drain_name(5): 3_040.0}, {drain_name(5): 9_000.0}]
    results.add(PEERS[OURS], "bench", "drain, 5 ms", values, None)
    results.add(PEERS["celery"], "threads", "drain, 5 ms", [{drain_name(5): 320.0}], None)
    results.add(PEERS["celery"], "prefork", "drain, 5 ms", [], "it hung")
    ours, celery, huey = results.rows()
    assert (ours["version"], ours[drain_name(5)], ours[share_name(5)]) == ("0.1", 3_040.0, 0.95)
    assert celery[share_name(5)] == 0.1
    assert celery["not_measured"] == {"drain, 5 ms (processes)": "it hung"}
    assert celery["variants"] == {"threads": {drain_name(5): 320.0}}
    assert (huey["peer"], huey["not_measured"]) == ("huey", {"everything": "no network"})


def rows(**ours: float) -> list[Row]:
    """As they are when every target is just met; `ours` differ."""
    just = {
        "enqueue_single_per_s": 1_500.0,
        "enqueue_bulk_per_s": 30_000.0,
        "drain_per_s": 20_000.0,
        "drain_two_workers_per_s": 30_000.0,
        "drain_async_per_s": 20_000.0,
        "start_ms_p50": 1.5,
        "start_ms_p99": 5.0,
        "bytes_per_job": 400.0,
        **{drain_name(ms): 0.95 * 16_000 / ms for ms in targets.LONG_MS},
        **{share_name(ms): 0.95 for ms in targets.LONG_MS},
    }
    python = {
        "enqueue_single_per_s": 1_000.0,
        "drain_per_s": 2_500.0,
        "bytes_per_job": 401.0,
        **{drain_name(ms): 0.95 * 16_000 / ms for ms in targets.LONG_MS},
    }
    node = {"enqueue_single_per_s": 9_999.0, "enqueue_bulk_per_s": 10_000.0, "drain_per_s": 8_000.0}
    return [
        {"peer": OURS, "title": "Ductor", **just, **ours},
        {"peer": "huey", "title": "Huey", **python},
        {"peer": "rq", "title": "RQ", "drain_per_s": 100.0, "enqueue_single_per_s": 10.0, "bytes_per_job": 900.0},
        {"peer": "bullmq", "title": "BullMQ", **node},
    ]


def test_targets_that_are_just_met() -> None:
    verdicts = targets.judge(rows(), cpus=4)
    assert [verdict.figure for verdict in verdicts if not verdict.met] == []
    assert len(verdicts) == 18
    ratios = {verdict.figure: verdict.value for verdict in verdicts}
    assert ratios["ratio_drain_bullmq"] == 2.5
    assert ratios["ratio_drain_best_python"] == 8.0
    assert ratios["ratio_enqueue_bulk_bullmq"] == 3.0
    assert ratios["ratio_enqueue_single_best_python"] == 1.5, "beside Huey, not beside BullMQ"


@pytest.mark.parametrize(
    ("figure", "value", "missed"),
    [
        ("enqueue_single_per_s", 1_499.0, ["ratio_enqueue_single_best_python"]),
        ("enqueue_bulk_per_s", 29_999.0, ["ratio_enqueue_bulk_bullmq", "enqueue_bulk_per_s"]),
        ("drain_async_per_s", 19_990.0, ["ratio_async"]),
        ("drain_per_s", 19_990.0, ["ratio_drain_bullmq", "ratio_drain_best_python"]),
        ("drain_two_workers_per_s", 29_000.0, ["ratio_two_workers"]),
        (share_name(5), 0.949, [share_name(5)]),
        (drain_name(20), 700.0, ["ratio_drain_20ms_best"]),
        ("start_ms_p50", 1.51, ["start_ms_p50"]),
        ("start_ms_p99", 5.1, ["start_ms_p99"]),
        ("bytes_per_job", 402.0, ["bytes_per_job", "ratio_bytes_best"]),
    ],
)
def test_a_target_that_is_missed_by_a_little_is_missed(figure: str, value: float, missed: list[str]) -> None:
    verdicts = targets.judge(rows(**{figure: value}), cpus=4)
    assert [verdict.figure for verdict in verdicts if verdict.met is False] == missed
    assert [verdict.figure for verdict in verdicts if verdict.line().startswith("MISSED")] == missed


def test_what_cannot_be_judged_is_neither_met_nor_missed() -> None:
    two = next(one for one in targets.judge(rows(drain_two_workers_per_s=1.0), 2) if one.figure == "ratio_two_workers")
    assert two.met is None
    assert two.line().startswith("not judged       0.00x  at least 1.50x")
    assert "2 processors" in two.line()
    alone = targets.judge([row for row in rows() if row["peer"] == OURS], cpus=4)
    bulk = next(one for one in alone if one.figure == "ratio_enqueue_bulk_bullmq")
    assert (bulk.met, bulk.value) == (None, None)
    assert bulk.line() == "not judged           –  at least 3.00x     enqueue in bulk (not measured)"


def test_a_missed_target_is_a_sentence_with_the_ratio() -> None:
    [first, *_] = targets.judge(rows(drain_per_s=16_000.0), cpus=4)
    assert first.sentence() == "Drain, no-op (beside BullMQ): 2.00x; at least 2.50x is wanted."


def test_the_table_has_a_line_for_everybody() -> None:
    shown: list[Row] = [
        {"title": "Ductor", "version": "0.1", "drain_per_s": 20_000.4, share_name(5): 0.9512, "start_ms_p50": 0.614},
        {"title": "RQ", "version": None, "not_measured": {"everything": "no network"}},
    ]
    heading, ours, rq, why = table.lines(shown)
    assert heading.split()[:4] == ["single/s", "bulk/s", "drain/s", "1"]
    assert ours.split() == ["Ductor", "0.1", "–", "–", "20,000", "–", "–", "95.1%", "–", "–", "0.61", "ms", "–", "–"]
    assert rq.split() == ["RQ", *["–"] * 11]
    assert why == "  RQ, not measured: everything: no network"
    assert len(heading) == len(ours) == len(rq) <= 140
