"""Jobs described in Python and in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.definition import SparkStreamingJob, read_job, read_jobs

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = """\
job: orders
script: /jobs/orders.py
args: [--topic, orders, 7]
conf:
  spark.executor.memory: 2g
  spark.sql.adaptive.enabled: true
env: {MODE: fast}
spark_conn_id: spark_big
fresh: 36h
"""


def faults(place: Path) -> str:
    with pytest.raises(BadInputError) as refused:
        read_jobs(place)
    return refused.value.problem.replace(str(place.parent), "")


def test_yaml_says_what_python_says(tmp_path: Path):
    (tmp_path / "orders.yaml").write_text(ORDERS)
    assert read_job(tmp_path, "orders") == SparkStreamingJob(
        job="orders",
        script="/jobs/orders.py",
        args=("--topic", "orders", "7"),
        conf={"spark.executor.memory": "2g", "spark.sql.adaptive.enabled": "true"},
        env={"MODE": "fast"},
        spark_conn_id="spark_big",
        fresh="36h",
    )
    assert seconds_or_none("fresh", read_job(tmp_path, "orders").fresh) == 129_600


def test_folder_holds_files_with_one_job_or_several(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("job: a\nscript: a.py\n---\njob: b\nscript: b.py\n")
    (tmp_path / "c.yml").write_text("job: c\nscript: c.py\n")
    (tmp_path / "notes.txt").write_text("job: none of them")
    assert sorted(read_jobs(tmp_path)) == ["a", "b", "c"]
    assert sorted(read_jobs(tmp_path / "a.yaml")) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("job: a\nscript: [x]\n", "/a.yaml:2:9: expected script to be a text, found a list"),
        ("job: a\nscript: x\nargs: -v\n", "/a.yaml:3:7: expected args to be a list, found '-v'"),
        ("job: a\nscript: x\nconf:\n  k: {a: 1}\n", "/a.yaml:4:6: expected k to be a text, found a mapping"),
        ("job: a\nscript: x\nenv: [a]\n", "/a.yaml:3:6: expected env to be a mapping, found a list"),
        ("job: a\nscript: x\nscirpt: y\n", "/a.yaml:3:1: expected one of job, script, args"),
        ("job: a\nscript: x\njob: b\n", "/a.yaml:3:1: expected each name once in a job, found job again"),
        ("job: a\nscript:\n", "/a.yaml:2:8: expected script to be a text, found nothing"),
        ("job: a\n", "/a.yaml:1:1: expected a job with a name and a script, found no script"),
        ("- job: a\n", "/a.yaml:1:1: expected a job to be a mapping, found a list"),
        ("job: a\nscript: 'x\n", "/a.yaml:3:1: expected YAML, found that"),
        ("job: ../a\nscript: x\n", "/a.yaml:1:1: expected a job with a name and a script"),
        ("job: a\nscript: x\nfresh: soon\n", "/a.yaml:1:1: expected a job with a name and a script"),
        ("job: !!python/object/apply:os.system [id]\nscript: x\n", "/a.yaml:1:6: expected job to be a text"),
        ("job: a\nscript: x\n---\njob: a\nscript: y\n", "/a.yaml:4:1: expected each job once, found a again"),
        ("", "expected files *.yaml with a job each, found none"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_column(tmp_path: Path, text: str, fault: str):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert fault in faults(file)


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("job: a\nscript: [x]\nargs: y\n")
    (tmp_path / "b.yaml").write_text("job: {}\n")
    found = faults(tmp_path)
    assert [place for place in ("a.yaml:2:9", "a.yaml:3:7", "b.yaml:1:6") if place not in found] == []


def test_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path):
    assert "cannot be read (FileNotFoundError)" in faults(tmp_path / "none.yaml")
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in faults(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("#" * (1 << 20) + "\njob: a\nscript: x\n")
    assert "expected at most 1048576 bytes" in faults(tmp_path / "a.yaml")


def test_job_that_no_definition_names_is_refused_with_those_that_there_are(tmp_path: Path):
    (tmp_path / "orders.yaml").write_text(ORDERS)
    with pytest.raises(BadInputError, match="expected a job clicks, found orders"):
        read_job(tmp_path, "clicks")
