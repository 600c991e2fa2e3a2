"""The records that callers and the agent write for each other.

Silence is never success: an agent that wrote no ``closed`` has not stopped, whatever else it reported. No
record holds a secret.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from airflow_flinkstyle.protocol.errors import DRIVER_TOLD_TO_END
from airflow_flinkstyle.protocol.line import Parent, Turn
from airflow_flinkstyle.protocol.query_records import QueryStatus, SourceIdentity
from airflow_flinkstyle.protocol.record import Record, SignedRecord
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import Alignment, ClaimMode, Generation, Incarnation, OnFailedSavepoint, Rewind

Command = Literal["savepoint", "stop", "stop_with_savepoint", "none"]
RequestState = Literal["sent", "accepted", "closing", "cancelled"]
"""``closing``: a stop whose queries are held, with its savepoint; it cannot be cancelled any more."""
Outcome = Literal["done", "refused", "failed", "cancelled", "lost"]
SubmitState = Literal["asked", "submitted", "failed", "dead"]
"""``failed``: no process was started; ``dead``: a person declares, or its supervisor saw, that it ended."""
MAX_INTERVAL_S: Final = 5.0
"""Between two heartbeats at most; six times in a lease at least."""
LIVED_S: Final = 300.0
"""A driver that lived for so long did not die of what its predecessor died of."""
MOST_URL_CHARACTERS = 200
"""Length of the address of Spark's UI; a longer one is left out."""
PAST_THE_AGENT = "started past PySpark's writers: it is in no savepoint, and none is taken while it runs"
"""How messages describe a query in ``unregistered``."""
AgentState = Literal["starting", "standby", "running", "draining", "closed", "failed"]
"""``starting`` until the script starts its first query; ``standby`` then, until it has an order to run."""


def beat_interval_s(lease_s: float) -> float:
    """Return how often a driver of such a lease writes its heartbeat."""
    return min(MAX_INTERVAL_S, lease_s / 6)


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOverride:
    """One rule for the Kafka options of an unmodified script; matches the role and the old servers."""

    role: Literal["source", "sink"]
    servers: str
    """``kafka.bootstrap.servers`` as the script writes it."""
    options: Mapping[str, str]
    """Options set instead, by the names of Spark's Kafka connector."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Every topic as the script writes it -> topic to read instead, or several with commas; in whichever of
    ``subscribe``, ``assign`` and ``subscribePattern`` the script uses. Empty: they keep their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(SignedRecord):
    """``runs/<generation>/claim.json``: the caller's, created once, before anything is submitted."""

    what: ClassVar[str] = "claim"

    claim_key: str
    """The caller, without the try number (DAG run and task): a retry finds its own claim again."""
    follows: Generation | None
    """The generation it may take over from; None for a job's first."""
    checkpoint_location: str
    """Every query's checkpoint is below it, in a folder of the query's name."""
    prepare_savepoint_id: Name | None
    """A hot savepoint to restore while waiting, so that less is copied in the window."""
    overrides: tuple[KafkaOverride, ...]
    lease_s: float
    """A predecessor whose heartbeat has not changed for so long is dead; an agent that could not confirm a
    heartbeat for so long ends its own process."""
    launch: Mapping[str, Any]
    """What a deployment needs to start one more incarnation (``jobs.spec``); no secrets."""
    claimed_at_ms: int
    claim_id: Name = field(default_factory=lambda: uuid.uuid4().hex)
    """It is on the driver's command line: two stores may hold the same root, job and generation."""
    rehearse: Rehearse | None = None
    """Whether its queries are tried on a copy of ``prepare_savepoint_id`` before the driver waits."""
    leave_checkpoints: tuple[str, ...] = ()
    """Locations that the script names, as the refusal wrote them: their checkpoints are left behind, and the
    queries start from scratch. Holds for this start alone: no later claim repeats it by itself."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """At a job's first start: ``Declared.key`` of each query of the root's other jobs -> its owner, for
    people."""
    asked_by: Mapping[str, str] = field(default_factory=dict)
    """The Airflow task that claims (``dag_id``, ``run_id``, ``task_id``), for people; empty for others."""

    @property
    def is_drill(self) -> bool:
        """Whether its driver only rehearses and never holds the job."""
        return self.rehearse is not None and self.rehearse.only


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverOrder(SignedRecord):
    """``runs/<generation>/takeover-order.json``: the caller's, created once: the driver may take over now."""

    what: ClassVar[str] = "takeover order"

    savepoint_id: Name | None
    """Restored by the agent into the checkpoint location, with the batches that are planned in it; None
    starts from what is there (or fresh)."""
    closed_at: Mapping[Name, int] | None
    """Query name -> batch: the predecessor must have closed at exactly these; None accepts a dead one."""
    expected: Mapping[Name, Mapping[str, SourceIdentity]]
    """Query name -> source -> the log it must read; empty if no run has recorded it yet."""
    parent: Parent
    """What the generation continues: its place in the tree of the job's generations."""
    turns: tuple[Turn, ...] = ()
    """The turns of its line, the oldest first, with its own if it is one; of a long list the newest
    ``line.MOST_TURNS``. Set when the order is written, since the job's head is known then."""
    rewind: Rewind = "continue"
    skip_known_batches: bool = False
    """A person accepts that a sink leaves out the batches whose ids it remembers."""
    unused_from: Mapping[Name, int | None] = field(default_factory=dict)
    """Of a start that does not continue the job's own numbers: query name -> a number above every batch that
    runs of the job may have had; None where the records cannot tell. A query whose sink may remember batch
    ids begins no lower: a fork of it is restored as if its last batch had this number, and whatever would
    begin below it is refused, unless ``skip_known_batches``."""
    claim_mode: ClaimMode = "no_claim"
    """``claim``: the savepoint is this job's from now on, and goes once a newer one has taken its place."""
    while_held: Name | None = None
    """The migration that holds the producers meanwhile: the driver takes over only while that migration's
    ``0-work.json`` says that they are held. None: no producers are held."""
    ended: Incarnation | None = None
    """With ``closed_at`` None: the predecessor's driver that was found to have ended, as ``current.json``
    named it. A later driver of it has continued the job, and is not taken over. None: no predecessor."""

    def fits(self, current: Current | None) -> bool:
        """Return whether the predecessor is still the one that was found to have ended."""
        return self.ended is None or (current is not None and current.incarnation == self.ended)

    @property
    def adopts(self) -> Generation | None:
        """The generation in whose checkpoint it continues; None: it has a checkpoint of its own."""
        return self.parent.generation if self.parent.savepoint_id is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precopy(Record):
    """``runs/<generation>/precopy.json``: the caller's, replaced by the next: a newer hot savepoint.

    A driver that waits, and has copied an older one, copies what is new in it. No decision depends on it.
    """

    what: ClassVar[str] = "pre-copy"

    savepoint_id: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit(Record):
    """``runs/<generation>/submit.json``: written by the one caller that may start the newest driver process.

    Written before the process starts, with the next number and only if unchanged, so that one of two callers
    starts it; then replaced, if unchanged, with the outcome. A driver whose submit is not the newest ends.
    """

    what: ClassVar[str] = "submit"

    number: int = 1
    """Counts the driver processes that callers asked for, from 1."""
    key: str
    """The caller, without the try number."""
    deployment: str
    state: SubmitState
    asked_at_ms: int
    native_id: Mapping[str, str] = field(default_factory=dict)
    """The process, as its deployment names it; empty until it was started."""
    detail: str = ""
    """``failed``: why it could not be started; ``dead``: who declared it dead, or saw its end, and why."""
    transient: bool = False
    """With ``failed``: whether the cause may pass, so that the same start may succeed later."""
    retry: int = 0
    """How many times in a row a driver was started again: after one died, or failed or could not be started
    for a transient reason."""
    retried_at: Mapping[str, int] = field(default_factory=dict)
    """With ``retry``: the newest committed batches by then; any newer one resets the count, and so does a
    driver that lived for ``LIVED_S``."""
    failing_since_ms: int | None = None
    """With ``retry``: when the first of them was started again, by that caller's clock."""

    def next_retry(self, last: Heartbeat | None, lease_s: float) -> int:
        """Return which start in a row the next one is since a batch was committed, or a driver lived long.

        Args:
            last: The last heartbeat of the run; None if there is none.
            lease_s: Of the run.
        """
        if last is not None and last.lived_s(lease_s) > LIVED_S:
            return 1  # a topic without records has no batches either
        return self.retry + 1 if self.retried_at == (last.batches() if last is not None else {}) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEnd(SignedRecord):
    """``runs/<generation>/ended/<of>-<incarnation>.json``: a caller has seen a driver's end.

    Written for the drivers of ``<generation>``, with a signature that only they and callers can verify: so
    they need not wait until that driver was silent for its lease. An end is final: nothing replaces it.
    """

    what: ClassVar[str] = "driver's end"

    generation: Generation
    """Of the driver that has ended."""
    incarnation: Incarnation
    """Which of that generation's."""
    seen: str
    """How it was seen, for people."""
    seen_at_ms: int
    last_beat: int | None = None
    """If only its silence shows the end: ``beat`` of the heartbeat that did not change; a newer heartbeat
    makes this record void. None: its process was seen to be gone."""
    silent_s: float = 0.0
    """For how long the caller saw that heartbeat unchanged, by its own clock; with ``last_beat``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationRecord(Record):
    """``runs/<generation>/incarnations/<n>.json``: the agent's, created once at its start."""

    what: ClassVar[str] = "incarnation"

    host: str
    pid: int
    jvm_pid: int
    pid_started: str
    """Start time of the JVM from ``/proc`` and the boot id, so that a reused pid is not taken for it."""
    started_at_ms: int
    pid_namespace: str = ""
    """In which pids are counted, as Linux numbers it; empty if unknown: then no host can see the process."""
    submit: int = 0
    """The submit that it was started by; 0 if unknown."""
    cluster_id: str = ""
    """The cluster manager's id of it: ``driver-...``, ``application_...``; empty outside of clusters."""
    agent_version: str = ""
    """Version of the package that the driver runs: for people; no version is refused."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """Records of the driver that took the job over, repeated so that one read shows the job's state.

    Only records that never change, and the submit with the version that it had: the copy of the submit holds
    as long as a listing shows that version. No process is started from these copies.
    """

    claim: Claim
    order: TakeoverOrder | None
    process: IncarnationRecord | None
    """None while a caller holds the job."""
    submit: Submit | None
    submit_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Current(Record):
    """``current.json``: the only driver process that may run batches of the job."""

    what: ClassVar[str] = "current.json"

    generation: Generation
    incarnation: Incarnation
    recorded: AsRecorded | None = None
    """None: read each record at its own key."""
    place_id: str = ""
    """Of the checkpoint location in which that driver runs, as its owner's mark says: the same location on
    another machine's disk is another place, with another state."""
    stands_for: Generation | None = None
    """While a caller holds the job: the generation whose driver's place it took; else None."""

    @property
    def head(self) -> Generation:
        """The generation that the job's state is of: the newest whose driver took over."""
        return self.stands_for or self.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Record):
    """``runs/<generation>/heartbeat.json``: the agent's, replaced only if unchanged."""

    what: ClassVar[str] = "heartbeat"

    incarnation: Incarnation
    state: AgentState
    beat: int
    """Counts a driver's writes: a lease runs on the reader's clock, from the last change it saw."""
    written_at_ms: int
    spark_version: str
    application_id: str
    queries: Mapping[Name, QueryStatus]
    request_id: Name | None = None
    """``closed`` only: the stop request that ended the run; None if the script or an early signal did so."""
    savepoint_id: Name | None = None
    """``closed`` only: the savepoint the stop ended with."""
    error: tuple[str, str] | None = None
    """Error code and text: of ``failed``; of ``closed``, why the stop has no savepoint, or that a signal
    ended the run instead of a request (``told_to_end``)."""
    transient: bool = False
    """``failed`` only: the cause may pass by itself, so the run may be started again as it is."""
    python_version: str = ""
    """Of the driver."""
    dropped: tuple[Name, ...] = ()
    """Queries that the job no longer has, whose checkpoints may still be beside the others'."""
    ui_url: str | None = None
    """Address of Spark's own UI, for people: ``uiWebUrl``, at most 200 characters; None without one."""
    precopied: Name | None = None
    """The newest savepoint of a pre-copy request that the driver has handled, copied or not."""
    unregistered: tuple[str, ...] = ()
    """Names, or ids, of queries that the driver's JVM runs and that were started past PySpark: they are in no
    savepoint, and savepoints are refused while they run. At most 16."""
    has_committed: bool = False
    """Whether a query has committed a batch since this generation took the job over."""

    @property
    def told_to_end(self) -> bool:
        """Whether the run drained because its cluster, its service or a person sent SIGTERM."""
        code = self.error[0] if self.error is not None else ""
        return (self.state, self.request_id, code) == ("closed", None, DRIVER_TOLD_TO_END.code)

    @property
    def is_final(self) -> bool:
        """Whether no driver of this generation will follow: it closed, or failed for a lasting reason."""
        return self.state == "closed" or (self.state == "failed" and not self.transient)

    def lived_s(self, lease_s: float) -> float:
        """Return for how long its driver had lived, at least by its usual pace: no clocks are compared.

        Args:
            lease_s: Of its run.
        """
        return self.beat * beat_interval_s(lease_s)

    def batches(self) -> dict[str, int]:
        """Return query name -> newest committed batch, leaving out queries without one."""
        return {name: query.batch_id for name, query in self.queries.items() if query.batch_id is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """``runs/<generation>/request.json``: one slot, replaced only if unchanged.

    The agent accepts by replacing the slot before it acts, a caller cancels by the same replace, so
    exactly one of them wins. ``none`` with state ``cancelled`` closes an empty slot against a late request.
    """

    what: ClassVar[str] = "request"

    request_id: Name
    """Derived from DAG run, task and incarnation, without the try number: a retry re-attaches."""
    incarnation: Incarnation
    """A later incarnation ends the request as ``lost`` and never executes it."""
    command: Command
    state: RequestState
    savepoint_id: Name | None
    """The id the savepoint will have; None for a plain stop."""
    sent_at_ms: int
    alignment: Alignment = "none"
    """``aligned``: all queries of the job are cut at the same offsets; ``none``: each where it is."""
    drain: bool = False
    """Aligned stops only: read to the end that the inputs have once the queries are held."""
    cut_id: Name | None = None
    """Aligned only: the barrier is agreed on with other jobs under this id."""
    hold_s: float = 60.0
    """How long the agent holds its queries for the other jobs of a cut; then all continue without a cut."""
    on_failed_savepoint: OnFailedSavepoint = "keep_running"
    """Stops with a savepoint only: what to do if that fails. ``close`` stops the job without it."""
    attend_s: float = 0.0
    """``none`` only: a stop will follow within so long, so the agent reads the slot more often."""
    timeout_s: float | None = None
    """How long the caller waits. By then the agent gives up a savepoint, and a stop that may be undone; None:
    the caller set no limit, and the agent's own applies."""

    @property
    def may_be_undone(self) -> bool:
        """Whether the job runs on if it fails or is cancelled while it is served: all but a plain stop."""
        return self.command != "stop" or self.alignment == "aligned"

    @property
    def may_be_cancelled(self) -> bool:
        """Whether a caller may still cancel it: a stop until its queries are held, with their savepoint."""
        return self.may_be_undone if self.state == "accepted" else self.state == "sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Record):
    """``reports/<generation>/<id>.progress.json``: newest progress of a savepoint; gaps are normal."""

    what: ClassVar[str] = "progress"

    request_id: Name
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Record):
    """``reports/<generation>/<id>.end.json``: how a request ended; created once."""

    what: ClassVar[str] = "end report"

    request_id: Name
    outcome: Outcome
    savepoint_id: Name | None
    detail: str
    """One sentence for the task log."""
    ended_at_ms: int
    batches: Mapping[Name, int] = field(default_factory=dict)
    """Query name -> last committed batch, for a stop."""
    transient: bool = False
    """Whether it failed for a reason that may pass: nothing changed, and the request may be repeated."""


# Which attempt works on a migration or an upgrade, as other processes see it: a counter that must change.
#
# No process compares another machine's clock with its own: a reader reads the record, and again later.

CutoverKind: TypeAlias = Literal["migration", "upgrade"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord(Record):
    """``migrations/<id>/0-work.json``: written again and again by the attempt that works on it.

    It starts and stops nothing: it says when others may settle the migration or upgrade, and until when a
    driver with a takeover order may take over.
    """

    what: ClassVar[str] = "work on a cutover"

    cutover: CutoverKind
    attempt: int
    beat: int
    """Grows with every write of the attempt; with ``attempt`` it tells two writes apart."""
    holder: str
    """The machine and the process that work on it, for people."""
    lease_s: float
    """After so long without a write, the attempt counts as ended."""
    held_s: float
    """Seconds from the begin of this write for which producers are certain to be held; 0 before the takeover
    order, and where none are held."""
    written_at_ms: int
    """Epoch milliseconds by that machine's clock, for people."""
