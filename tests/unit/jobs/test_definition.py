"""Jobs described in Python and in YAML."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.definition import SparkStreamingJob, read_definitions, read_job, read_jobs

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


BOMBS = {
    "nested lists": "[" * 100_000,
    "nested mappings": "{a: " * 100_000,
    "nested blocks": "".join(f"{' ' * depth}a:\n" for depth in range(1000)),
    "a list in itself": "job: a\nscript: x\nargs: &a [*a, *a]\n",
    "a mapping in itself": "&a {job: a, script: x, env: *a}\n",
    "aliases of aliases": "".join(
        f"{name}: &{name} [{', '.join(['x' if before is None else f'*{before}'] * 9)}]\n"
        for before, name in zip([None, *"abcdefgh"], "abcdefghi", strict=True)
    ),
    "many values": "job: a\nscript: x\nargs: [" + "a," * 400_000 + "]\n",
    "one long value, everywhere": f"job: &a {'x' * 500_000}\nscript: x\nargs: [{'{k: *a},' * 5000}]\n",
    "long names": f"? &a {'x' * 500_000}\n: 1\n" + "? *a\n: 1\n" * 5000,
}


@pytest.mark.parametrize("loader", ["fast", "pure"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_no_file_keeps_the_other_definitions_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: str, loader: str
):
    if loader == "pure":  # as where PyYAML was built without libyaml
        monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    (tmp_path / "a.yaml").write_text(bomb)
    (tmp_path / "orders.yaml").write_text(ORDERS)
    found = read_definitions(tmp_path)
    assert list(found.jobs) == ["orders"]
    assert found.faults
    assert sum(map(len, found.faults)) < 10_000, "they stand in a form"


def test_what_is_too_much_is_named_with_its_place(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(f"job: a\nscript: x\nargs: {'[' * 20}{']' * 20}\n")
    assert "/a.yaml:3:14: expected at most 8 levels, found more" in faults(tmp_path)
    (tmp_path / "a.yaml").write_text("".join(f"- {number}\n" for number in range(30_000)))
    assert "expected at most 20000 values, found more" in faults(tmp_path)
    (tmp_path / "a.yaml").write_text("job: a\nscript: x\n" + "".join(f"k{n}: 1\n" for n in range(50)))
    assert "and 30 more" in faults(tmp_path)


def test_anchors_may_spare_a_job_repetitions(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("job: a\nscript: x\nargs: [&t orders, --to, *t]\n")
    assert read_job(tmp_path, "a").args == ("orders", "--to", "orders")


def test_pipe_among_the_definitions_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "a.yaml")
    assert "a.yaml: expected a file" in faults(tmp_path)


def test_job_that_no_definition_names_is_refused_with_those_that_there_are(tmp_path: Path):
    (tmp_path / "orders.yaml").write_text(ORDERS)
    with pytest.raises(BadInputError, match="expected a job clicks, found orders"):
        read_job(tmp_path, "clicks")
