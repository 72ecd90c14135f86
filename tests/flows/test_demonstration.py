"""The flow of the demonstration, from its declaration to what each step is given."""

from __future__ import annotations

import pytest

from flows import declaring, flow, map_step, step
from flows.draft import Draft
from flows.inputs import arguments, items, result
from flows.operations import resume
from flows.snapshot import Ending
from flows.values import Json
from tests.flows.tasks import import_chunk, read_file, report, validate
from tests.flows.world import World


def import_upload(upload_id: int) -> object:
    text = step(read_file, upload_id)
    checked = step(validate, text, retries=2)
    chunks = map_step(import_chunk, checked["chunks"], upload_id, max_parallel=16, retries=3)
    return step(report, upload_id, chunks.counts)


@pytest.mark.parametrize("seed", range(5))
def test_an_upload_is_imported_although_a_chunk_fails_for_good_at_first(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declaring, "registry", {})
    made = flow(import_upload).definition
    outputs = {"read_file": "a,b", "validate": {"chunks": [1, 2, 3]}, "report": "sent"}

    def body(name: str, index: int | None, attempt: int) -> tuple[Ending, Json]:
        return ("failed" if (name, index, attempt) == ("import_chunk", 1, 1) else "completed"), outputs.get(name)

    run = World(made, body, lambda name: 3, seed, losses=0.2, input=made.bind((7,), {}))
    assert (run.finish().state, run.run.cause) == ("failed", "import_chunk")
    assert run.apply(resume(made, run.snapshot(), run.now_ms))
    run.wake()
    assert run.finish().state == "completed"

    snapshot = run.snapshot()
    lookup = Draft(made, snapshot, run.now_ms).lookup
    steps = made.by_name
    assert items(steps["import_chunk"], lookup) == [1, 2, 3]
    assert arguments(steps["validate"], lookup) == (["a,b"], {})
    assert arguments(steps["report"], lookup) == ([7, {"total": 3, "completed": 3, "failed": 0}], {})
    assert result(made, lookup) == "sent"
    ran = sorted((index, attempt) for name, index, attempt in run.ran if name == "import_chunk")
    assert [key for key in ran if key[0] == 1] == [(1, 1), (1, 2)]
    assert [name for name, _, _ in run.ran if name != "import_chunk"] == ["read_file", "validate", "report"]
