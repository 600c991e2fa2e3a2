"""What the page's API answers, as OpenAPI shows it: times in epoch milliseconds, sizes in bytes.

Types only: the answers are made in ``documents`` and ``job_reader``, and a test compares them with these.
Where an answer is a record as it is stored, the record is the type.
"""

# Pydantic reads the annotations at run time, so they are not postponed.

from typing import Annotated, Any

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from airflow_flinkstyle.jobs.usage import KeptReference, KeptSavepoint
from airflow_flinkstyle.protocol.comparison_records import ComparedQuery
from airflow_flinkstyle.protocol.history import Sample
from airflow_flinkstyle.protocol.query_records import Pace


class Answer(TypedDict):
    """Base: no field beyond those that are declared."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]


class Fault(Answer):
    """An error, as three sentences."""

    code: Annotated[str, Field(description="Stable name, listed in the incident cookbook.")]
    problem: str
    state_after: str
    remedy: str


class FailedAnswer(Answer):
    """Why there is no answer."""

    error: Fault


class AskedBy(Answer):
    """The task of Airflow that asked for a start."""

    dag_id: str
    run_id: str
    task_id: str


class Query(Answer):
    """One query, by the newest heartbeat."""

    name: str
    batch_id: int | None
    committed_at_ms: int | None
    sink: str | None
    waiting: Annotated[bool, Field(description="The run continues it; its script has not started it yet.")]
    failed: bool
    clusters: Annotated[list[str], Field(description="Ids of the Kafka clusters that it reads.")]
    notes: Annotated[list[str], Field(description="What its start could not check, and what it has lost.")]
    pace: Pace | None


class Totals(Answer):
    """The rates of all queries together."""

    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    batch_ms: int | None
    lag_records: int | None
    last_batch_at_ms: int | None


class Status(Totals):
    """What a job is doing, since when, and where."""

    state: Annotated[
        str, Field(description="never started, starting, running, closed, failed, dead, or unknown.")
    ]
    reason: str
    is_certain: Annotated[
        bool | None, Field(description="Whether its driver's heartbeat was seen to change.")
    ]
    generation: int | None
    incarnation: int | None
    started_by: str | None
    asked_by: AskedBy | None
    host: str | None
    since_ms: int | None
    heartbeat_at_ms: int | None
    spark_version: str | None
    application_id: str | None
    spark_ui: Annotated[str | None, Field(description="Address of Spark's own UI while the driver lives.")]
    queries: list[Query]
    error: Fault | None


class VerifiedAnswer(Answer):
    """The newest check that a savepoint passed."""

    level: Annotated[str, Field(description="quick or full.")]
    at_ms: int


class Savepoint(Answer):
    """What a list shows of a savepoint."""

    savepoint_id: str
    taken_at_ms: int
    generation: int | None
    spark_version: str
    alignment: str
    cut_id: str | None
    parent: Annotated[str | None, Field(description="The savepoint that it was made from.")]
    batches: dict[str, int]
    files: int
    size_bytes: Annotated[int, Field(description="If nothing were shared with other savepoints.")]
    new_bytes: Annotated[
        int | None, Field(description="In files that the one before it did not have; null if not known yet.")
    ]
    verified: VerifiedAnswer | None
    damaged: str | None
    pinned: Annotated[str | None, Field(description="Why a person keeps it.")]
    in_use: Annotated[
        str | None, Field(description="Which run or migration needs it; null in the table of jobs.")
    ]
    beside: Annotated[
        str | None,
        Field(description="Why it is not on the line of the job's head, and which start abandoned it."),
    ]


class Phase(Answer):
    """One phase of a migration or an upgrade."""

    phase: str
    begun_at_ms: int
    done_at_ms: int | None
    failure: str | None


class Journal(Answer):
    """A migration, an upgrade or a roll back."""

    id: str
    phase: str
    is_done: bool
    ended: bool
    went_back: bool
    failure: str | None
    compared: Annotated[str | None, Field(description="What both versions computed, in a line.")]
    asked_by: AskedBy | None
    begun_at_ms: int
    newest_at_ms: int
    phases: list[Phase]


class JobRow(Status):
    """A job in the table."""

    job: str
    newest_savepoint: Savepoint | None
    savepoints: int | None
    open: list[Journal]


class RootJobs(Answer):
    """The jobs below one savepoint root, as read last."""

    conn_id: str
    loading: bool
    reading: bool
    jobs: list[JobRow]
    not_jobs: list[str]
    read_at_ms: int | None
    requests: Annotated[int, Field(description="To the store, since the API server began.")]
    error: Fault | None


class Jobs(Answer):
    """All jobs that the user may see."""

    roots: list[RootJobs]


class ComparedQueryAnswer(Answer):
    """One query of two versions."""

    name: str
    verdict: str
    notes: Annotated[list[str], Field(description="What the counts do not show.")]
    found: ComparedQuery


class ComparisonAnswer(Answer):
    """What two versions of a job computed on the same records."""

    verdict: Annotated[str, Field(description="same, differs, or not comparable.")]
    summary: str
    savepoint_id: Annotated[str, Field(description="From which both ran.")]
    old: Annotated[int, Field(description="The generation that ran the job's version.")]
    new: int
    again: Annotated[int | None, Field(description="The generation that ran the job's version once more.")]
    asks_again: Annotated[bool, Field(description="Whether such a run may still explain what differs.")]
    ended_at_ms: int
    leaves_open: Annotated[str, Field(description="What no comparison shows.")]
    queries: list[ComparedQueryAnswer]


class RunAnswer(Answer):
    """One generation of a job."""

    generation: int
    started_by: str | None
    asked_by: AskedBy | None
    claimed_at_ms: int | None
    from_savepoint: str | None
    adopts_checkpoint_of: Annotated[
        int | None, Field(description="The generation in whose checkpoint it continued.")
    ]
    beside: Annotated[str | None, Field(description="Which start abandoned what the run did last.")]
    state: str
    heartbeat_at_ms: int | None
    restarted_at_ms: Annotated[list[int], Field(description="When drivers after the first began.")]
    savepoint_id: Annotated[str | None, Field(description="With which it closed.")]
    error: list[str] | None
    batches: dict[str, int]
    comparison: Annotated[
        ComparisonAnswer | None, Field(description="What it has compared, without rows and keys.")
    ]


class Trouble(Answer):
    """Something that went wrong, for the timeline."""

    at_ms: int
    generation: int | None
    kind: Annotated[str, Field(description="failed, dead, restarted, went back, or damaged.")]
    text: str


class Node(Answer):
    """A run or a savepoint in the lineage graph."""

    id: Annotated[str, Field(description="run/<generation> or savepoint/<id>.")]
    row: Annotated[int, Field(description="The generation whose row it is in; 0 for none.")]
    at_ms: int | None
    state: str


class Edge(Answer):
    """What was made of what."""

    source: str
    target: str
    kind: Annotated[str, Field(description="took, started, continued or rewritten.")]


class Lineage(Answer):
    """Which savepoint and which run came from which."""

    nodes: list[Node]
    edges: list[Edge]
    left_out: Annotated[int, Field(description="Older savepoints that are not in the graph.")]


class Unreadable(Answer):
    """A savepoint whose manifest cannot be read."""

    savepoint_id: str
    problem: str
    remedy: str


class Job(Status):
    """One job."""

    job: str
    read_at_ms: int
    savepoints: list[Savepoint]
    savepoints_total: int
    damaged: list[Unreadable]
    runs: list[RunAnswer]
    journals: list[Journal]
    trouble: list[Trouble]
    lineage: Lineage
    history: Annotated[
        dict[str, list[Sample]], Field(description="Seconds that a point stands for -> points.")
    ]


class Savepoints(Answer):
    """Some of a job's savepoints, the newest first."""

    total: int
    savepoints: list[Savepoint]


class KeptCheckpoint(Answer):
    """The checkpoint of one run, or of several that continued in it."""

    generations: list[int]
    goes: Annotated[bool, Field(description="The next prune frees it.")]
    reason: str
    size_bytes: Annotated[int | None, Field(description="Null if it is not to be seen from the API server.")]


class UsageAnswer(Answer):
    """What a job keeps."""

    job: str
    savepoints: list[KeptSavepoint]
    references: list[KeptReference]
    checkpoints: list[KeptCheckpoint]
    blob_bytes: Annotated[int, Field(description="Of all files of savepoints, each counted once.")]
    unneeded_bytes: Annotated[int, Field(description="Of files that no savepoint needs.")]
    checkpoint_bytes: Annotated[int, Field(description="As far as they are to be seen.")]
    total_bytes: int


class KeptAnswer(Answer):
    """What a job keeps, as ``flinkstyle store usage`` shows it."""

    read_at_ms: int
    not_counted: Annotated[str | None, Field(description="Why it was not counted.")]
    found: UsageAnswer | None


class PositionAnswer(Answer):
    """Where a query stood in one partition."""

    source: str
    cluster: str
    topic: str
    partition: int
    next_offset: int
    earliest: int | None
    unread: Annotated[int | None, Field(description="To the log's end when it was taken.")]


class SavedQuery(Answer):
    """One query of a savepoint."""

    name: str
    query_id: str
    batch_id: int
    sink: str | None
    checkpoint_location: str
    has_planned_batch: bool
    files: int
    size_bytes: int
    settings: dict[str, str]
    positions: list[PositionAnswer]


class SavepointContent(Savepoint):
    """What is in one savepoint."""

    evidence: dict[str, str]
    queries: list[SavedQuery]


class DriverLog(Answer):
    """The end of a driver's log, and the pages that show the run."""

    generation: int
    host: str | None
    file: Annotated[str | None, Field(description="On that host; null on a cluster.")]
    cluster_page: Annotated[str | None, Field(description="The cluster manager's page of the driver.")]
    log_page: Annotated[str | None, Field(description="Where the cluster shows the whole log.")]
    spark_ui: Annotated[str | None, Field(description="Spark's UI, as the cluster leads to it.")]
    text: str


Diff = dict[str, Any]
"""As ``flinkstyle savepoint diff --json`` prints it."""
