"""The examples of `docs/flows.md` run as written, and give what it says; its numbers are those of the code."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from django.test import RequestFactory

from flows import checking, declaring, fanout, get_run, handle, models, reports, rows, sweep, watchdog
from flows.checking import DURATION_MAX_S, PARALLEL_MAX, STEPS_MAX
from flows.cli.showing import text_of
from flows.declaring import MapOptions, Options
from flows.versions import load_flows
from queueapp.conf import load
from queueapp.producer.discovery import registry as tasks
from tests.working import work

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/flows.md").read_text()
BLOCKS = re.findall(r"^```python\n# shop/(\w+)\.py\n(.*?)^```$", PAGE, re.S | re.M)
[README] = re.findall(r"^```python\n# shop/flows\.py\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    load_flows()  # the demonstration's has the same name
    monkeypatch.setattr(declaring, "registry", {})
    known, made = dict(tasks), {}
    sys.modules["shop"] = ModuleType("shop")
    for name, text in BLOCKS:
        made[name] = load_module(name, text)
    yield SimpleNamespace(**made)
    tasks.clear()
    tasks.update(known)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def load_module(name: str, text: str) -> ModuleType:
    module = sys.modules[f"shop.{name}"] = ModuleType(f"shop.{name}")
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def test_every_block_is_used_here(shop: SimpleNamespace) -> None:
    assert [name for name, _ in BLOCKS] == ["tasks", "flows", "views", "orders"]


def test_an_upload_from_the_view_to_the_report(shop: SimpleNamespace, rf: RequestFactory) -> None:
    [text] = re.findall(r"here `(\{[^`]+\})`", PAGE)
    asked = [json.loads(shop.views.uploaded(rf.get("/", {"customer": "acme"}), 7).content) for _ in range(2)]
    assert asked[0] == asked[1], "its key makes it one run"
    work(slots=2)
    told = json.loads(shop.views.outcome(rf.get("/"), asked[0]["run"]).content)
    assert told == {"state": "completed", "report": json.loads(text)}
    assert get_run(asked[0]["run"]).wait(timeout=0) == told["report"]
    assert models.Run.objects.get().tenant == "acme"


def test_a_cheap_order_waits_for_nobody(shop: SimpleNamespace) -> None:
    run = shop.orders.order.start("pen", 100, "Elm Street")
    work()
    assert run.refresh().output == {"to": "Elm Street", "approved_by": "nobody"}
    states = dict(models.StepRun.objects.values_list("step", "state"))
    assert (states["check_address"], states["approved"], states["sleep_1"]) == ("failed", "skipped", "skipped")
    assert (shop.orders.SENT, shop.orders.STOCK) == (["pen"], {"pen": 2})


def test_one_that_is_not_express_sleeps(shop: SimpleNamespace) -> None:
    run = shop.orders.order.start("pen", 100, "Elm Street", express=False)
    work()
    assert run.refresh().state == "running"
    assert dict(models.StepRun.objects.values_list("step", "state"))["sleep_1"] == "running"


def test_an_expensive_one_is_approved_refused_and_taken_back(shop: SimpleNamespace) -> None:
    run = shop.orders.order.start("pen", 2000, "Elm Street")
    work()
    assert (run.refresh().state, shop.orders.STOCK) == ("running", {"pen": 2})
    assert run.send_event("approved", {"by": "kim"})
    work()
    assert (run.refresh().state, run.row.cause) == ("compensated", "charge")
    assert (shop.orders.SENT, shop.orders.STOCK) == ([], {"pen": 3})


def test_the_flow_of_the_readme_is_that_of_the_page() -> None:
    assert dict(BLOCKS)["flows"] == README


def test_its_options_are_those_of_a_step() -> None:
    table = PAGE.split("| option | meaning |")[1].split("\n\n")[0]
    named = {name for cell in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(Options.__annotations__)
    assert set(MapOptions.__annotations__) - named == {"max_parallel"}
    for how in ("stop", "continue", "compensate"):
        checking.require_on_failure("x", how)
        assert f"| `{how}`" in PAGE


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"| steps of a flow | {STEPS_MAX};" in PAGE
    assert f"{fanout.PARALLEL:,} with the queue at once, or `max_parallel`, up to {PARALLEL_MAX:,}" in PAGE
    assert f"At most `max_parallel` items ({fanout.PARALLEL:,})" in PAGE
    assert f"vanished from the store more than {['', '', 'two', 'three'][fanout.LOSSES_MAX]} times" in PAGE
    assert f"| a `key` | {handle.KEY_MAX} characters |" in PAGE
    assert ("ten years" in PAGE, DURATION_MAX_S) == (True, 10 * 365 * 86_400)
    assert f"its last {reports.ERROR_CHARACTERS:,} characters" in PAGE
    assert f"An output above {rows.OUTPUT_BYTES // 1024} KiB" in PAGE
    assert f"every {watchdog.WATCH_MS // 60_000} min while something is with the queue" in PAGE
    assert f"rows that have waited for {sweep.UNRELAYED_MS // 1000} s" in PAGE
    assert f"whose moment has passed by {sweep.LATE_MS // 1000} s" in PAGE
    assert f"`RUNS_TTL` ({load({})[0].runs_ttl_ms // 86_400_000} days;" in PAGE


def test_the_drawing_on_the_page_is_what_the_terminal_draws() -> None:
    steps = [
        ("read_file", (), "completed", 0.31, None),
        ("validate", ("read_file",), "completed", 0.12, None),
        ("import_chunk", ("validate",), "failed", 4.2, {"total": 6, "completed": 5, "failed": 1}),
        ("report", ("import_chunk",), "waiting", None, None),
    ]
    facts = {
        "id": "r",
        "note": None,
        "parent": None,
        "took_s": None,
        "events": [],
        "steps": [
            {
                "step": name,
                "after": after,
                "state": state,
                "attempt": 0 if state == "waiting" else 1,
                "took_s": took_s,
                "items": items,
                "error": "item 3: ValueError" if state == "failed" else None,
                **dict.fromkeys(("kind", "skipped", "due_at", "job", "run", "started_at")),
            }
            for name, after, state, took_s, items in steps
        ],
    }
    [drawn] = re.findall(r"^```\n(\*.*?)\n```$", PAGE, re.S | re.M)
    assert text_of(facts, drawn=True).partition("\n\n")[2] == drawn
