"""A job, described once: ``SparkStreamingJob`` in Python, or a YAML file; DAGs and command line read both.

A folder of definitions holds ``*.yaml`` files with one job each, or several with ``---`` between them:

    job: orders
    script: /jobs/orders.py
    args: [--topic, orders]
    conf:
      spark.executor.memory: 2g
    fresh: 36h
    max_count: 24
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.values import number_or_none, one_of, seconds_or_none
from airflow_flinkstyle.protocol.board import check_job_name
from airflow_flinkstyle.savepoint.files.verify import LEVELS
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from yaml import Node

MOST_BYTES: Final = 1 << 20
"""A larger file holds no definitions."""
MOST_NODES: Final = 20_000
"""Values in a file, each use of an alias counted: a thousand jobs have fewer."""
MOST_LEVELS: Final = 8
"""A job needs three: itself, a mapping or a list, and the values in it."""
MOST_FAULTS: Final = 20
"""How many faults of one file are named."""
_MOST_SHOWN: Final = 200
"""Characters shown of a value that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStreamingJob:
    """The definition of a job, for every way to start it."""

    job: str
    """Its name, unique under the savepoint root."""
    script: str
    """The PySpark script, as the driver sees it."""
    args: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings; they are recorded, so no secrets."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The driver's environment; it is recorded, so no secrets."""
    spark_conn_id: str = "spark_default"
    """Airflow's connection of type ``spark``: where the driver runs if a DAG starts it."""
    flinkstyle_conn_id: str = "flinkstyle_default"
    """Airflow's connection with the savepoint root."""
    fresh: str | float | None = None
    """How old the newest savepoint may be: seconds, or like ``36h``; None for any age."""
    max_count: str | int | None = None
    """How many savepoints a rotation keeps; None for any number."""
    max_age: str | float | None = None
    """How old a savepoint may be that a rotation keeps: seconds, or like ``7d``; None for any age."""
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    """While plain Spark runs the job: query name -> the location that its script names. A rotation takes its
    savepoints from outside then, until it is adopted."""
    kafka_conn_ids: tuple[str, ...] = ()
    """Airflow's connections of the Kafka clusters that such a job reads."""
    verify: str = "quick"
    """How a rotation checks each savepoint: ``quick``, or ``full``, which reads every byte."""

    def __post_init__(self) -> None:
        """Refuse a definition that cannot run."""
        check_job_name(self.job)
        if not self.script:
            raise _bad(f"job {self.job}", "a script", "none")
        seconds_or_none("fresh", self.fresh)
        one_of("verify", self.verify, LEVELS)
        _ = self.retention

    @property
    def retention(self) -> RetentionPolicy:
        """What a rotation keeps."""
        return RetentionPolicy(
            max_count=number_or_none("max_count", self.max_count),
            max_age_s=seconds_or_none("max_age", self.max_age),
        )

    def operator_arguments(self) -> dict[str, Any]:
        """Return what ``StartStreamingJobOperator`` takes beside a ``task_id``."""
        return {
            "job": self.job,
            "script": self.script,
            "args": list(self.args),
            "conf": dict(self.conf),
            "env": dict(self.env),
            "spark_conn_id": self.spark_conn_id,
            "flinkstyle_conn_id": self.flinkstyle_conn_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """What a file or a folder defines."""

    jobs: Mapping[str, SparkStreamingJob]
    """By name."""
    faults: tuple[str, ...]
    """What is wrong, each with file, line and column; a job that is named here is not among ``jobs``."""

    def require_all(self) -> None:
        """Require that nothing is wrong.

        Raises:
            BadInputError: Naming everything that is.
        """
        if self.faults:
            names = ", ".join(item.name for item in fields(_KIND))
            raise BadInputError(
                f"The definitions of jobs should be right, but {'; '.join(self.faults)}.",
                state_after="None of these was used.",
                remedy=f"Correct them. A job has the fields {names}.",
            )


def read_definitions(place: str | Path) -> Definitions:
    """Return the jobs of a YAML file, or of all ``*.yaml`` and ``*.yml`` files in a folder.

    A wrong definition of one job does not affect the others.
    """
    root = Path(place)
    files = sorted([*root.glob("*.yaml"), *root.glob("*.yml")]) if root.is_dir() else [root]
    found: dict[str, SparkStreamingJob] = {}
    faults: list[str] = []
    for file in files:
        for at, job in _jobs_of(file, faults):
            if job.job in found:
                faults.append(f"{at}: expected each job once, found {job.job} again")
            else:
                found[job.job] = job
    if not found and not faults:
        faults.append(f"{root}: expected files *.yaml with a job each, found none")
    return Definitions(jobs=found, faults=tuple(faults))


def read_jobs(place: str | Path) -> dict[str, SparkStreamingJob]:
    """Return the jobs of a file or folder by name, if all definitions are right.

    Raises:
        BadInputError: Naming everything that is wrong, each with file, line and column.
    """
    found = read_definitions(place)
    found.require_all()
    return dict(found.jobs)


def read_job(place: str | Path, job: str) -> SparkStreamingJob:
    """Return one of the jobs of a file or folder.

    Raises:
        BadInputError: If a definition is wrong, or none is of that name.
    """
    found = read_jobs(place)
    if job not in found:
        raise _bad(str(place), f"a job {job}", ", ".join(found))
    return found[job]


def _jobs_of(file: Path, faults: list[str]) -> Iterator[tuple[str, SparkStreamingJob]]:
    import yaml

    try:
        if not file.is_file() and file.exists():  # a pipe would block
            faults.append(f"{file}: expected a file")
            return
        if file.stat().st_size > MOST_BYTES:
            faults.append(f"{file}: expected at most {MOST_BYTES} bytes")
            return
        text = file.read_text(encoding="utf-8")
        if (too_much := _beyond_bounds(text)) is not None:
            faults.append(f"{file}:{too_much}")
            return
        nodes = list(yaml.compose_all(text, Loader=_loader()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        faults.append(f"{place}: expected YAML, found that {error.problem}")
        return
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        faults.append(f"{file}: expected YAML, found that it cannot be read ({type(error).__name__})")
        return
    found: list[str] = []
    for node in nodes:
        job = _DocumentReader(file, found).job(node)
        if job is not None:
            yield _at(file, node), job
    faults += found[:MOST_FAULTS]
    if len(found) > MOST_FAULTS:
        faults.append(f"{file}: and {len(found) - MOST_FAULTS} more")


def _beyond_bounds(text: str) -> str | None:
    """Return where a file nests deeper, or has more values, than definitions do; None if it does not.

    What turns YAML into values calls itself for each level, and too many end the process that reads the DAGs'
    files; YAML's parser does not.
    """
    import yaml

    levels = nodes = 0
    for event in yaml.parse(text, Loader=_loader()):
        levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if levels > MOST_LEVELS or nodes > MOST_NODES:
            bound = f"{MOST_LEVELS} levels" if levels > MOST_LEVELS else f"{MOST_NODES} values"
            mark = event.start_mark
            return f"{mark.line + 1}:{mark.column + 1}: expected at most {bound}, found more"
    return None


def _loader() -> Any:  # noqa: ANN401 - one of yaml's classes
    """Return yaml's fastest loader of plain values: a DAG's file is parsed every minute."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _DocumentReader:
    """Reads one document; notes each fault and its place."""

    def __init__(self, file: Path, faults: list[str]) -> None:
        self._file, self._faults, self._before = file, faults, len(faults)

    def job(self, node: Node) -> SparkStreamingJob | None:
        values: dict[str, Any] = {}
        readers: dict[str, Callable[[str, Node], Any]] = {
            item.name: getattr(self, _READERS.get(item.name, "_text")) for item in fields(_KIND)
        }
        for name, key, value in self._pairs("a job", node):
            if name not in readers:
                self._fault(key, f"one of {', '.join(readers)}", name)
            else:
                values[name] = readers[name](name, value)
        if len(self._faults) == self._before:
            try:
                return SparkStreamingJob(**values)
            except (BadInputError, TypeError) as error:
                missing = sorted({"job", "script"} - values.keys())
                problem = (
                    f"no {' and no '.join(missing)}" if missing else str(getattr(error, "problem", error))
                )
                self._fault(node, "a job with a name and a script", problem)
        return None

    def _pairs(self, what: str, node: Node) -> Iterator[tuple[str, Node, Node]]:
        if node.id != "mapping":
            self._fault(node, f"{what} to be a mapping", _kind(node))
            return
        seen = set()
        for key, value in node.value:
            name = self._text("a name", key)
            if name in seen:
                self._fault(key, f"each name once in {what}", f"{name} again")
            seen.add(name)
            yield name, key, value

    def _text(self, name: str, node: Node) -> str:
        if node.id != "scalar" or node.tag == "tag:yaml.org,2002:null":
            self._fault(node, f"{name} to be a text", _kind(node))
            return ""
        return str(node.value)

    def _texts(self, name: str, node: Node) -> tuple[str, ...]:
        if node.id != "sequence":
            self._fault(node, f"{name} to be a list", _kind(node))
            return ()
        return tuple(self._text(f"each of {name}", item) for item in node.value)

    def _mapping(self, name: str, node: Node) -> dict[str, str]:
        return {key: self._text(key[:_MOST_SHOWN], value) for key, _, value in self._pairs(name, node)}

    def _fault(self, node: Node, expected: str, found: str) -> None:
        if len(found) > _MOST_SHOWN:
            found = f"{found[:_MOST_SHOWN]}..."
        self._faults.append(f"{_at(self._file, node)}: expected {expected}, found {found}")


def _at(file: Path, node: Node) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _kind(node: Node) -> str:
    kinds = {"mapping": "a mapping", "sequence": "a list", "scalar": f"{node.value!r}"}
    return "nothing" if node.tag == "tag:yaml.org,2002:null" else kinds[node.id]


def _bad(where: str, expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"{where}: expected {expected}, found {found}.",
        state_after="Nothing was started.",
        remedy="Correct the definition, or the name that was asked for.",
    )


_KIND = SparkStreamingJob
_READERS: Final = {
    "args": "_texts",
    "conf": "_mapping",
    "env": "_mapping",
    "checkpoints": "_mapping",
    "kafka_conn_ids": "_texts",
}
