"""With blocks open on several connections a job waits for all of them, or for the one that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connections, transaction

from queueapp.producer import transactions
from tests.producing import add
from tests.unit.transactions.rollback import rolled_back


class TestSeveralConnections:
    """Blocks on two connections, told apart by hand: what Django's own do at commit and at rollback is what counts."""

    class Connection:
        def __init__(self, alias: str) -> None:
            self.alias = alias
            self.in_atomic_block = True
            self.atomic_blocks = [object()]
            self.hooks: list[tuple[Callable[[], None], bool]] = []

        def on_commit(self, hook: Callable[[], None], robust: bool = False) -> None:
            self.hooks.append((hook, robust))

        def commit(self) -> None:
            self.in_atomic_block, self.atomic_blocks = False, []
            for hook, _ in self.hooks:
                hook()

        def rollback(self) -> None:
            self.in_atomic_block, self.atomic_blocks, self.hooks = False, [], []

    @pytest.fixture
    def pair(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
        pair = [self.Connection("a"), self.Connection("b")]
        with monkeypatch.context() as patched:
            patched.setattr(connections, "all", lambda initialized_only=False: pair)
            yield pair

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_it_waits_for_both(self, pair: list[Connection], order: tuple[int, int]) -> None:
        sent: list[bool] = []
        assert transactions.defer(lambda _: sent.append(True), True)

        pair[order[0]].commit()
        assert sent == []
        pair[order[1]].commit()
        assert sent == [True]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_a_rollback_of_either_keeps_it_back(self, pair: list[Connection], order: tuple[int, int]) -> None:
        sent: list[bool] = []
        transactions.defer(lambda _: sent.append(True), True)

        pair[order[0]].rollback()
        pair[order[1]].commit()
        assert sent == []

    def test_a_commit_then_a_rollback_keeps_it_back(self, pair: list[Connection]) -> None:
        sent: list[bool] = []
        transactions.defer(lambda _: sent.append(True), True)

        pair[0].commit()
        pair[1].rollback()
        assert sent == []

    def test_hooks_are_robust(self, pair: list[Connection]) -> None:
        transactions.defer(lambda _: None, True)

        assert [robust for connection in pair for _, robust in connection.hooks] == [True, True]

    def test_on_commit_is_not_called_where_no_block_is_open(self, pair: list[Connection]) -> None:
        pair[1].in_atomic_block, pair[1].atomic_blocks = False, []
        transactions.defer(lambda _: None, True)

        assert [len(connection.hooks) for connection in pair] == [1, 0]


class TestTwoDatabases:
    """The same with Django's own blocks, on two real databases."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_it_waits_for_the_last_commit(self, second_database: str, inner: str, waiting: Callable[[], int]) -> None:
        outer = "default" if inner == second_database else second_database
        with transaction.atomic(using=outer):
            with transaction.atomic(using=inner):
                add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_a_rollback_of_the_outer_keeps_it_back(
        self, second_database: str, inner: str, waiting: Callable[[], int]
    ) -> None:
        outer = "default" if inner == second_database else second_database
        with rolled_back(outer), transaction.atomic(using=inner):
            add.enqueue(1)
        assert waiting() == 0

    @pytest.mark.parametrize("inner", ["default", "second"])
    def test_a_rollback_of_the_inner_keeps_it_back(
        self, second_database: str, inner: str, waiting: Callable[[], int]
    ) -> None:
        outer = "default" if inner == second_database else second_database
        with transaction.atomic(using=outer), rolled_back(inner):
            add.enqueue(1)
        assert waiting() == 0

    def test_a_block_of_another_alias_alone_counts(self, second_database: str, waiting: Callable[[], int]) -> None:
        with transaction.atomic(using=second_database):
            add.enqueue(1)
            assert waiting() == 0
        assert waiting() == 1

    def test_the_option_database_waits_for_that_one_alone(
        self, second_database: str, waiting: Callable[[], int]
    ) -> None:
        with transaction.atomic(using=second_database):
            with transaction.atomic():
                add.using(database="default").enqueue(1)
                assert waiting() == 0
            assert waiting() == 1
            add.using(database="default").enqueue(2)
            assert waiting() == 2, "no block of that database is open"
            add.using(database=second_database).enqueue(3)
            assert waiting() == 2
        assert waiting() == 3
