"""The table of final failures in docs/operating.md says what the code does."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from tools import errors


def test_table_of_final_failures_is_current():
    assert errors.render() == errors.PAGE.read_text(encoding="utf-8"), "run: make errors"


@pytest.mark.parametrize("status", range(400, 600))
def test_status_of_s3_passes_unless_it_denies_or_is_an_answer(status: int):
    error = errors.store_error(status)
    assert isinstance(error, FlinkstyleError)
    assert error.retryable == (status not in {401, 403, 404})
