"""Drivers on a real server: Ductor's always, other queues' where `bench throughput --prepare` was run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from queueapp.bench import MARK
from queueapp.bench.peers.environments import Environment, is_ready
from queueapp.bench.peers.measuring import Measurement
from queueapp.bench.peers.roster import OURS, PEERS
from queueapp.store.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "name", [OURS, *(pytest.param(name, marks=pytest.mark.long) for name in PEERS if name != OURS)]
)
def test_a_driver_sends_and_its_worker_runs(
    name: str, own_server: Callable[..., EmbeddedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, home = PEERS[name], ROOT / ".bench" / name
    if name != OURS and not is_ready(peer, home):
        pytest.skip(f"{peer.title} is not installed")
    server = own_server()
    for variable, value in {
        MARK: str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "queueapp.bench.settings",
        "REDIS_URL": server.url,
        "PYTHONPATH": str(ROOT),
    }.items():
        monkeypatch.setenv(variable, value)
    if name == OURS:
        subprocess.run([sys.executable, "-m", "django", "migrate", "--verbosity", "0"], check=True)
    with redis.Redis.from_url(server.url, protocol=2) as client:
        measurement = Measurement(Environment(peer, home), client, server.url, tmp_path)
        assert (measurement.enqueue_per_s("single", 20) or 0) > 0
        bulk = measurement.enqueue_per_s("bulk", 20)
        assert bulk is None or bulk > 0
        assert measurement.bytes_per_job(100) > 96
        if name == OURS:
            assert measurement.drain_per_s(next(iter(peer.variants)), 50, 1, body="async") > 0
        for variant in peer.variants:
            assert measurement.drain_per_s(variant, 50, 1) > 0
            starts = measurement.starts(variant, 3)
            assert 0 <= starts.p50 <= starts.p99
