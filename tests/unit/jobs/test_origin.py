"""One mapping from what a form, an operator or the command line says to where a start continues from."""

from __future__ import annotations

from typing import get_args

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.start.origins import (
    Fresh,
    FromCheckpoint,
    FromSavepoint,
    LastState,
    Origin,
    origin_of,
)
from airflow_flinkstyle.types import StartFrom


def none_taken() -> None:
    """Stand for a job without a savepoint."""


@pytest.mark.parametrize(
    ("start_from", "said", "origin"),
    [
        ("last_state", {"savepoint_id": "None", "discard_history": ""}, LastState()),
        ("checkpoint", {}, FromCheckpoint()),
        ("fresh", {"discard_history": "generation 3"}, Fresh(discard_history="generation 3")),
        (
            "savepoint",
            {"savepoint_id": "sp-1", "rewind": None, "skip_known_batches": "True", "claim_mode": "claim"},
            FromSavepoint(savepoint_id="sp-1", skip_known_batches=True, claim_mode="claim"),
        ),
    ],
)
def test_answers_of_a_form_are_texts_and_mean_the_same(start_from: str, said: dict[str, str], origin: Origin):
    assert origin_of(start_from, newest=none_taken, **said) == origin


@pytest.mark.parametrize("start_from", get_args(StartFrom))
def test_every_start_that_a_form_offers_is_known(start_from: str):
    origin_of(start_from, newest=none_taken, savepoint_id="sp-1" if start_from == "savepoint" else None)


@pytest.mark.parametrize("savepoint_id", [None, "latest"])
def test_start_from_a_savepoint_that_is_not_there_is_refused(savepoint_id: str | None):
    with pytest.raises(BadInputError, match="A savepoint was expected"):
        origin_of("savepoint", newest=none_taken, savepoint_id=savepoint_id)
