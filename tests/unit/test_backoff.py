"""How long a job waits before another attempt: what the task, the setting and `Retry` say, and how it travels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test.utils import override_settings

from queueapp import Retry, backoff
from queueapp.errors import InvalidOption
from queueapp.producer.backoff import Exponential, Fixed, delay_s, from_options, to_options
from tests.producing import add, chosen


class TestBackoff:
    def test_exponential_grows_to_its_maximum(self) -> None:
        delays = [backoff.exponential(5, 2, 600, jitter=False)(ValueError(), errors) for errors in range(1, 10)]

        assert delays == [5, 10, 20, 40, 80, 160, 320, 600, 600]
        assert backoff.exponential(jitter=False)(ValueError(), 10_000) == 600

    def test_full_jitter_draws_from_nothing_to_the_bound(self) -> None:
        draws = [backoff.exponential(10, 2, 600)(ValueError(), 2) for _ in range(500)]

        assert 0 <= min(draws) < 4
        assert 16 < max(draws) <= 20

    def test_the_default_is_exponential_from_five_seconds(self) -> None:
        assert 0 <= (add.retry_delay(ValueError(), 1) or 0) <= 5
        assert max(add.retry_delay(ValueError(), 1) or 0 for _ in range(200)) > 2

    def test_the_setting_is_used_where_the_task_names_none(self) -> None:
        with override_settings(DUCTOR={"BACKOFF": 9}):
            assert add.retry_delay(ValueError(), 1) == 9
            assert chosen.retry_delay(ValueError(), 1) == 7

    def test_retry_names_its_own_delay(self) -> None:
        assert chosen.retry_delay(Retry(delay=timedelta(seconds=2)), 1) == 2
        assert chosen.retry_delay(Retry("later"), 1) == 7
        with pytest.raises(InvalidOption, match="delay"):
            Retry(delay=-1)

    def test_none_asks_for_no_other_attempt(self) -> None:
        assert delay_s(lambda exception, errors: None, ValueError(), 1) is None

    def test_a_callable_that_answers_nonsense_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="backoff"):
            delay_s(lambda exception, errors: "soon", ValueError(), 1)  # type: ignore[arg-type]  # wrong on purpose

    @pytest.mark.parametrize("made", [Fixed(delay_s=3), Exponential(first_s=1, factor=3, maximum_s=9, jitter=False)])
    def test_it_travels_as_json(self, made: Fixed | Exponential) -> None:
        carried = to_options(made)

        assert carried is not None
        assert from_options(carried) == made

    @pytest.mark.parametrize(
        ("carried", "said"),
        [
            ({"delay": 1, "first": 2}, "backoff has 'first'"),
            ({"wait": 1}, "backoff has 'wait'"),
            ({"jitter": "no"}, "jitter='no'"),
            ({"factor": True}, "factor=True"),
        ],
    )
    def test_what_it_does_not_know_is_refused_by_name(self, carried: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidOption, match=said):
            from_options(carried)
