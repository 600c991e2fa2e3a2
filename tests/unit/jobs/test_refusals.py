"""What becomes of a job whose cluster takes no driver: every status, and what spark-submit says."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.jobs.deployments.refusals import FINAL_STATUSES, FINAL_WORDS, not_taken, why_final
from airflow_flinkstyle.jobs.errors import DriverFailedError, NotTakenError
from testbed.histories.troubles import SAID_BY_SUBMIT

OF_SPARK_SUBMIT = """26/11/27 03:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library
Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST \
at: https://10.0.0.1/api/v1/namespaces/jobs/pods. Message: {message}. Received status: \
Status(apiVersion=v1, code={code}, details=StatusDetails(causes=[], kind=pods), kind=Status, reason=Any).
"""
ENDS = {
    **SAID_BY_SUBMIT,
    "spark-submit did not end within 300 s": True,
    "WARN Utils: java.io.FileNotFoundException: /proc/1/stat\nCaused by: java.io.IOException: cut": True,
}
"""What spark-submit ends with: whether it may pass."""


@pytest.mark.parametrize("code", range(300, 600))
def test_status_of_the_api_server_passes_unless_the_list_has_it(code: int):
    passes = code not in FINAL_STATUSES
    assert (why_final("any words", code) is None) == passes
    assert (why_final(OF_SPARK_SUBMIT.format(message="any words", code=code)) is None) == passes
    assert passes == (code not in {400, 401, 403, 404, 405, 406, 413, 414, 415, 422})


def test_quota_that_is_full_passes():
    assert why_final("pods 'a' is forbidden: exceeded quota: full", 403) is None
    assert why_final(OF_SPARK_SUBMIT.format(message="forbidden: exceeded quota: full", code=403)) is None


@pytest.mark.parametrize(("said", "passes"), ENDS.items())
def test_end_of_spark_submit_passes_unless_the_list_has_it(said: str, *, passes: bool):
    assert (why_final(f"log\n{said}\n\tat line 1\n") is None) == passes


@pytest.mark.parametrize("word", FINAL_WORDS)
def test_each_word_of_the_list_is_final_in_what_ended_spark_submit_only(word: str):
    assert why_final(f"Caused by: {word}")
    assert why_final(f"INFO: {word}") is None or word in {"JAVA_HOME is not set", "could not be run"}


def test_errors_say_whether_asking_again_helps():
    passing = not_taken("it is away.", by="YARN", remedy="Correct it.", why=None)
    lasting = not_taken("it is away.", by="YARN", remedy="Correct it.", why="the same again")
    assert isinstance(passing, NotTakenError)
    assert passing.retryable
    assert "a watcher asks again" in passing.remedy
    assert type(lasting) is DriverFailedError
    assert not lasting.retryable
    assert "the same again" in lasting.remedy
