"""The pool of a cell: as the cell wants it while it is open, and gone with all it held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings
from django.test.utils import override_settings

from queueapp.bench.dispatching import conf
from queueapp.bench.live.plan import InvalidPlan
from queueapp.bench.live.pools import opened
from queueapp.models import Pool, TenantLimits
from queueapp.policies.room import Limits
from queueapp.store import connection, shards
from queueapp.store.embedded import EmbeddedServer
from queueapp.store.records import NewJob

pytestmark = pytest.mark.django_db(transaction=True)
LIMITS = {"acme": Limits(weight=2.5, ceiling=3), "globex": Limits(weight=0.5)}


@pytest.fixture
def own_client(own_server: Callable[..., EmbeddedServer]) -> Iterator[redis.Redis]:
    """A server that may be emptied, as the benchmark does."""
    server = own_server()
    with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": server.url}):
        connection.reset()
        shards.forget()
        client = redis.Redis.from_url(server.url, protocol=2)
        yield client
        client.close()


@pytest.mark.parametrize(
    ("way", "policy"), [("direct", "wfq"), ("scheduled", "lottery"), ("scheduled", "edf"), ("none", "fifo")]
)
def test_a_cells_pool_is_in_force_while_it_is_open(own_client: redis.Redis, way: str, policy: str) -> None:
    with opened("cell-1", way, policy, LIMITS):
        reads = shards.reads("cell-1")
        assert reads.configured() == conf(way, policy)
        in_force = reads.scope_limits()
        assert {key[0]: (one.weight, one.max_in_flight) for key, one in in_force.items()} == {
            "acme": (2.5, 3),
            "globex": (0.5, None),
        }
        assert [row.name for row in Pool.objects.all()] == ["cell-1"], "its processes find it"


def test_nothing_of_a_cell_is_left_for_the_next_one(own_client: redis.Redis) -> None:
    with opened("cell-1", "direct", "tiered", LIMITS):
        prefix = shards.keys("cell-1").prefix
        new = [NewJob(id=f"{n:022d}", task="t", tenant="acme", payload=b"{}", fingerprint="f") for n in range(3)]
        shards.store("cell-1").enqueue(new)
        assert own_client.keys(f"{prefix}job:*") != []
    assert own_client.keys(f"{prefix}job:*") == own_client.keys(f"{prefix}q:*") == []
    assert (Pool.objects.count(), TenantLimits.objects.count()) == (0, 0)
    with opened("cell-2", "direct", "fifo", {}):
        assert shards.reads("cell-2").scope_limits() == {}


def test_limits_that_no_tenant_may_have_are_refused_by_name(own_client: redis.Redis) -> None:
    with (
        pytest.raises(InvalidPlan, match=r"limits\.acme of the profile: .*weight"),
        opened("cell-1", "direct", "fifo", {"acme": Limits(weight=5_000)}),
    ):
        pass
    assert Pool.objects.count() == 0
