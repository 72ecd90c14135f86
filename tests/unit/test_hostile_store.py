"""Somebody who can write into the store: what a worker makes of it. The worker goes on, and imports nothing for it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from queueapp import task
from queueapp.codec import decode_arguments
from queueapp.errors import UnknownTask
from queueapp.producer.discovery import find, registry
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2-in-a-payload"


@task
def take(*args: object, **kwargs: object) -> str:
    return "taken"


@task
def quote(password: str) -> None:
    raise ValueError("it broke")


PAYLOADS = (
    b"",
    b"\xff\xfe",
    b"null",
    b"5",
    b"[]",
    b'"text"',
    b'{"a":5}',
    b'{"a":{},"k":[]}',
    b'{"a":null}',
    b'{"k":[["x",1]]}',
    b'{"o":[1]}',
    b'{"o":"x"}',
    b'{"o":{"backoff":{"first":1e999}}}',
    b'{"o":{"backoff":"x"}}',
    b'{"o":{"backend":"nobody"}}',
    b'{"o":{"backend":["x"]}}',
    b'{"o":{"metadata":5}}',
    b'{"o":{"timeout":NaN}}',
    b'{"o":{"soft_timeout":"x"}}',
    b'{"o":{"timeout":-1}}',
    b'{"o":{"metadata":{"x":NaN}}}',
    b'{"o":{"typed":{}}}',
    b'{"a":[1],"a":[2]}',
    b"[" * 100_000,
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"t":1,"a":' + b'[{"$tuple":' * 20_000 + b"1" + b"}]" * 20_000 + b"}",
    b'{"a":[' + b"9" * 100_000 + b"]}",
    b'{"a":[1e999,-1e999,NaN]}',
    b'{"a":["\\ud800"]}',
    b'{"t":1,"a":[{"$decimal":"1e999999999"}]}',
    b'{"t":1,"a":[{"$decimal":"' + b"9" * 200_000 + b'"}]}',
    b'{"t":1,"a":[{"$decimal":"x"}]}',
    b'{"t":1,"a":[{"$timedelta":[1e18,0,0]}]}',
    b'{"t":1,"a":[{"$timedelta":[1,2,3,4,5,6,7,8]}]}',
    b'{"t":1,"a":[{"$uuid":5}]}',
    b'{"t":1,"a":[{"$bytes":"\xc3\xa9"}]}',
    b'{"t":1,"a":[{"$datetime":"2030-01-01T00:00:00+00:00[../../../etc/passwd]"}]}',
    b'{"t":1,"a":[{"$time":"00:00:00[this]"}]}',
    b'{"t":1,"a":[{"$date":null}]}',
    b'{"t":1,"a":[{"$import":"os"}]}',
    b'{"t":1,"a":[{"__class__":"os.system"}]}',
    b'{"t":1,"k":{"$uuid":"00000000-0000-0000-0000-000000000000"}}',
)


def enqueue(payload: bytes, name: str = f"{__name__}.take") -> str:
    job = NewJob(id=new_id(), task=name, tenant="acme", payload=payload, fingerprint="0" * 16)
    shards.store("default").enqueue([job])
    return job.id


def test_a_worker_goes_on_after_any_payload(store: Store, reads: Reads) -> None:
    hostile = [enqueue(payload) for payload in PAYLOADS]
    assert work(slots=2) == len(hostile)
    states = {record.state.value for record in reads.jobs(hostile) if record is not None}
    assert states == {"dead", "ended"}
    last = enqueue(b'{"a":[1]}')
    assert work() == 1
    record = reads.job(last)
    assert record is not None
    assert record.result == b'"taken"'


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: repr(payload[:30]))
def test_a_payload_is_read_or_is_no_payload(payload: bytes) -> None:
    """Whoever reads one need know of one kind of error, and of one shape."""
    try:
        args, kwargs, options = decode_arguments(payload)
    except ValueError:
        return
    assert (type(args), type(kwargs), type(options)) == (list, dict, dict)


def test_no_argument_stands_in_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    enqueue(f'{{"a":["{SECRET}"'.encode())
    enqueue(f'{{"t":1,"a":[{{"$uuid":"{SECRET}"}}]}}'.encode())
    enqueue(f'{{"k":{{"password":"{SECRET}"}}}}'.encode(), f"{__name__}.quote")
    assert work() == 3
    ours = [record for record in caplog.records if record.name.startswith("queueapp")]
    assert ours
    assert not [record for record in ours if SECRET in str(vars(record))]


class TestImporting:
    @pytest.fixture
    def beside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A script beside the project, which does what it does when it is imported."""
        name = "wipe_everything_for_tests"
        (tmp_path / f"{name}.py").write_text("import sys\nsys.wiped = True\ndef main(): ...\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delattr(sys, "wiped", raising=False)
        return name

    def test_a_name_from_the_store_imports_nothing_that_is_not_the_host_s(self, store: Store, beside: str) -> None:
        enqueue(b"{}", f"{beside}.main")
        work()
        for name in (
            f"{beside}.main",
            "this.s",
            "antigravity.webbrowser",
            "idlelib.idle.main",
            "",
            ".",
            "a..b",
            "x" * 9999,
        ):
            assert name not in registry
            with pytest.raises(UnknownTask):
                find(name)
        assert not hasattr(sys, "wiped")
        assert not {beside, "this", "antigravity", "idlelib.idle"} & set(sys.modules)

    def test_what_is_imported_but_no_task_is_none(self) -> None:
        for name in ("os.system", "queueapp.producer.discovery.find", "builtins.exec", f"{__name__}.Path"):
            with pytest.raises(UnknownTask):
                find(name)
