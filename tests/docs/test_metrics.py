"""`docs/metrics.md` names every metric with its type, labels and source; the files for Prometheus fit it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from queueapp import metrics
from queueapp.inspection.collector import COUNTERS, GAUGES, IS_LEADER, LABELS, STORE, STORE_UP
from queueapp.inspection.dead_gauges import FAMILIES as DEAD
from queueapp.inspection.fairness_gauges import FAMILIES as FAIRNESS

FAMILIES = FAIRNESS | DEAD
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `(ductor_\w+)` \| (\w+) \| ([\w, –]+) \| (\w+) \| (.+) \|$", re.MULTILINE)
ALERTS = yaml.safe_load((ROOT / "tools/prometheus-alerts.yml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
QUERIES = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)


def full(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def in_the_code() -> dict[str, tuple[str, str, str]]:
    """Metric → (type, labels, source)."""
    found = {}
    for instrument in metrics.INSTRUMENTS:
        kind = instrument._type
        labels = ", ".join(instrument._labelnames) or "–"
        found[full(instrument._name, kind)] = (kind, labels, "process")
    for family in STORE.describe():
        own = FAMILIES.get(family.name, ())[:1]
        found[full(family.name, family.type)] = (family.type, ", ".join([*LABELS, *own]), "store")
    found[STORE_UP] = ("gauge", "–", "store")
    found[IS_LEADER] = ("gauge", ", ".join(LABELS), "process")
    return found


def test_every_metric_is_documented_as_it_is() -> None:
    rows = ROW.findall(PAGE)
    documented = {name: (kind, labels, source) for name, kind, labels, source, _ in rows}
    assert len(documented) == len(rows), "one stands there twice"
    assert documented == in_the_code()


def test_every_instrument_is_in_the_list_of_the_module() -> None:
    instruments = [value for value in vars(metrics).values() if hasattr(value, "_labelnames")]
    assert list(metrics.INSTRUMENTS) == instruments
    assert set(GAUGES | COUNTERS | FAMILIES) | {STORE_UP} == {
        full(family.name, family.type) for family in STORE.describe()
    }


def test_alerts_and_examples_name_metrics_that_exist() -> None:
    known = set(in_the_code())
    for expression in [*QUERIES, *(rule["expr"] for rule in RULES)]:
        named = {
            re.sub(r"_(bucket|sum|count)$", "", name) if name not in known else name
            for name in re.findall(r"\bductor_\w+", expression)
        }
        assert named, expression
        assert named <= known, expression


def test_what_every_scheduler_shows_alike_is_never_summed() -> None:
    shared = [name for name, (_, _, source) in in_the_code().items() if source == "store"]
    for expression in [*QUERIES, *(rule["expr"] for rule in RULES)]:
        for name in shared:
            assert not re.search(rf"\bsum\b[^(]*\((rate\(|increase\()?{name}\b", expression), expression


def test_the_page_has_queries_for_what_people_ask() -> None:
    for name in (
        "ductor_queue_wait_seconds_bucket",
        "ductor_tenant_service_seconds_total",
        "ductor_worker_slot_seconds_total",
        "ductor_pending_tasks",
    ):
        assert any(name in query for query in QUERIES), name
    for query in QUERIES:
        assert query.count("(") == query.count(")"), query


class TestAlerts:
    def test_the_file_has_the_form_of_a_rule_file(self) -> None:
        assert ALERTS.keys() == {"groups"}
        assert [group.keys() for group in ALERTS["groups"]] == [{"name", "rules"}]
        names = [rule["alert"] for rule in RULES]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
    def test_each_says_what_is_wrong_and_what_to_do(self, rule: dict[str, Any]) -> None:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[ms]", rule.get("for", "0s"))
        assert rule["expr"].count("(") == rule["expr"].count(")")
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= set(re.findall(r"\w+", rule["expr"])), "a label that the expression does not keep"

    def test_the_leader_alert_is_that_of_the_page(self) -> None:
        (alert,) = (rule["expr"] for rule in RULES if rule["alert"] == "DuctorLeader")
        assert f"{alert}\n" in QUERIES
        assert alert.startswith("sum by (pool, shard) (ductor_scheduler_is_leader) != 1 or absent(")


def test_prometheus_scrapes_the_services_of_the_compose_file_where_they_listen() -> None:
    config = yaml.safe_load((ROOT / "tools/prometheus.yml").read_text())
    assert config["rule_files"] == ["prometheus-alerts.yml"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    scraped = {}
    for job in config["scrape_configs"]:
        (where,) = job["dns_sd_configs"]
        scraped.update(dict.fromkeys(where["names"], where["port"]))
    listening = {}
    for name, service in services.items():
        command = service.get("command", [])
        if "--metrics-addr" in command:
            listening[name] = int(command[command.index("--metrics-addr") + 1].rpartition(":")[2])
    assert scraped == listening == {"scheduler": 9100, "worker": 9101}
