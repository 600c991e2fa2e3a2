from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import seconds, seconds_or_none


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        *(
            ("7d", 604_800),
            ("36h", 129_600),
            ("45m", 2_700),
            ("90s", 90),
            ("2w", 1_209_600),
            ("0.5d", 43_200),
        ),
        *((90, 90), ("90", 90), (1.5, 1.5), ("", None), ("None", None), (None, None)),
    ],
)
def test_duration_is_seconds_or_a_number_with_its_unit(answer: object, found: float | None):
    assert seconds_or_none("max_age", answer) == found


@pytest.mark.parametrize("answer", ["7 moons", "d", "7dd", "1h30m", "-1d", "0", "inf", "nan", "7D"])
def test_duration_that_is_none_is_refused(answer: str):
    with pytest.raises(BadInputError, match="a duration like 90s, 36h or 7d"):
        seconds_or_none("max_age", answer)


def test_seconds_may_be_text_and_none_at_all():
    assert [seconds("wait", answer) for answer in ("1.5", 3, "0")] == [1.5, 3, 0]
    for answer in ("soon", "-1", "nan", "inf", None, "90s"):
        with pytest.raises(BadInputError, match="number of seconds, 0 or more"):
            seconds("wait", answer)
