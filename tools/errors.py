"""Write into docs/operating.md which failures are final, and why: `make errors`."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.causes import FINAL_CLASSES, FINAL_TYPES
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.refusals import FINAL_STATUSES, FINAL_WORDS
from airflow_flinkstyle.jobs.relaunch import MOST_RETRY_S, RETRY_S
from airflow_flinkstyle.jobs.status import LEAST_RETRIES, RETRY_FOR_S
from airflow_flinkstyle.kafka.final_codes import FINAL
from airflow_flinkstyle.protocol.records import LIVED_S
from airflow_flinkstyle.storage.s3_errors import translated
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE = ROOT / "docs" / "operating.md"
_BEGIN = "<!-- failures: written by `make errors`, do not edit -->"
_END = "<!-- failures: end -->"
_STATUSES = range(400, 600)
_S3_WHY = {
    "STORE_DENIED": "the key or its rights are refused until somebody corrects them",
    "OBJECT_MISSING": "the answer itself: the object is not there",
}
"""By the code of the store's error."""


def main() -> int:
    """Write the section."""
    PAGE.write_text(render(), encoding="utf-8")
    return 0


def render() -> str:
    """Return the whole page with the section as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}\n{section()}\n{_END}{rest.partition(_END)[2]}"


def section() -> str:
    """Return the rule, and the table of what is final."""
    rule = (
        "Any other failure is taken for one that passes: the job is `failed` (`dead` if its cluster takes no "
        "driver), `transient`, and a watcher, or a task that saves the job, starts it again after "
        f"{RETRY_S:g} s, {2 * RETRY_S:g} s, ... at most {MOST_RETRY_S:g} s, for {RETRY_FOR_S / 60:g} minutes "
        f"and {LEAST_RETRIES} times at least, counted from the last new batch or driver that lived for "
        f"{LIVED_S / 60:g} minutes. `job status` says since when "
        "and until when. Final, and told at once, are the answers below, and every error of the package that "
        "names what to correct. A wrong setting of Java's with an error of a network or a file behind it "
        "passes.\n"
    )
    lines = []
    for place, final in _finals():
        lines.append(f"- **{place}**")
        lines += [f"    - {why}: {', '.join(f'`{name}`' for name in names)}" for why, names in final]
    return "\n".join((rule, *lines))


def _finals() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    yield "Kafka, by librdkafka's codes", _by_reason(FINAL)
    yield "Kafka, Spark, Hadoop: classes of Java", _by_reason(FINAL_CLASSES)
    names = sorted(kind.__name__ for kind in FINAL_TYPES)
    yield "the script: types of Python, not those below", [("the same code would run again", names)]
    yield "S3, by HTTP status", _by_reason(_final_statuses())
    statuses = {str(status): why for status, why in FINAL_STATUSES.items()}
    yield "Kubernetes, by HTTP status (but a full quota)", _by_reason(statuses)
    yield "`spark-submit`, in what ended it", _by_reason(FINAL_WORDS)


def _by_reason(final: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    ordered = sorted(final.items(), key=lambda one: list(final.values()).index(one[1]))
    return [(why, [name for name, _ in some]) for why, some in groupby(ordered, key=lambda one: one[1])]


def _final_statuses() -> dict[str, str]:
    errors = {str(status): store_error(status) for status in _STATUSES}
    return {
        status: _S3_WHY[error.code]
        for status, error in errors.items()
        if isinstance(error, FlinkstyleError) and not error.retryable
    }


def store_error(status: int) -> Exception:
    """Return what a store makes of an HTTP status that comes without a code of S3."""
    import botocore.exceptions

    answer: Any = {"Error": {"Code": str(status)}, "ResponseMetadata": {"HTTPStatusCode": status}}
    answered = botocore.exceptions.ClientError(answer, "GetObject")
    try:
        with translated("read", "key", uri="s3://bucket", where="s3://bucket"):
            raise answered  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - also the signals of conditional writes, which are no errors
        return error


if __name__ == "__main__":
    sys.exit(main())
