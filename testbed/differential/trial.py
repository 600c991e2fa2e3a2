"""One script, plainly and under the agent, and the verdict."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from testbed.differential.caller import Caller, History, ScriptFailed, Stuck
from testbed.differential.deployment import WarmDeployment
from testbed.differential.judge import Allowed, judge
from testbed.differential.plain import run_plain
from testbed.differential.stage import Stage
from testbed.differential.states import judge_states, pairs

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from testbed.differential.deployment import Lane
    from testbed.differential.outputs import Written
    from testbed.differential.plan import Plan
    from testbed.differential.spec import QuerySpec, ScriptSpec
    from testbed.kafka import Broker

_LOGGED = frozenset(["json", "parquet", "delta", "batch-txn", "batch-remember"])
"""Sinks of whose rows the batch is known, so that a rewind's doubled rows can be counted."""

_MALFUNCTIONS = frozenset(["BAD_INPUT", "MESSAGE_FORMAT", "FLINKSTYLE", "PREDECESSOR"])
"""Codes of bad arguments, unreadable records and a start out of order: the caller gives no cause for them."""

Kind = Literal["equal", "refused", "both-fail", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a script."""

    kind: Kind
    codes: tuple[str, ...] = ()
    """Of refusals."""
    problems: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """What refusals said."""
    states: int = 0
    """How many were compared."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of the lane and of this process; a driver's with a JVM of its own and the broker's are not in it."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """Runs one script both ways."""

    spec: ScriptSpec
    plan: Plan
    folder: Path
    broker: Broker
    lane: Lane
    topics: str
    own_deployment: Deployment | None = None
    """Of drivers with a JVM of their own; None: the lane's."""
    own_conf: dict[str, str] = field(default_factory=dict)
    states: int = 0
    plain: Stage = field(init=False)
    _plain_rows: dict[int, list[Written]] = field(default_factory=dict)

    def run(self) -> Verdict:
        """Return the verdict; an error of the test bed itself is a failure too."""
        began_s, cpu_s = time.monotonic(), self._cpu_s()
        try:
            verdict = self._run()
        except Exception:  # noqa: BLE001  # told with the seed
            verdict = Verdict(kind="failed", problems=(traceback.format_exc(),))
        seconds = round(time.monotonic() - began_s, 2)
        return replace(verdict, seconds=seconds, cpu_s=round(self._cpu_s() - cpu_s, 2))

    def _cpu_s(self) -> float:
        return time.process_time() + self.lane.cpu_s()

    def _run(self) -> Verdict:
        self.plain = self._stage("plain")
        plain_failure = run_plain(self.lane.jvm, self.plain)
        if plain_failure is None:
            self._plain_rows = {
                place: self.plain.written(place)
                for place, query in enumerate(self.spec.queries)
                if query.source != "rate"
            }
        agent = self._stage("agent")
        caller = Caller(
            agent,
            self.own_deployment or WarmDeployment(jvms=self.lane),
            expect_kill=self.lane.expect_kill if self.own_deployment is None else lambda: None,
            conf=self.own_conf,
            is_right=lambda history: plain_failure is None and not self._wrong(agent, history),
        )
        try:
            history = caller.run(self.plan)
        except ScriptFailed as failure:
            return self._judge_failure(failure, plain_failure, caller.history, agent)
        except Stuck as stuck:
            return self._verdict("failed", caller.history, [str(stuck)])
        if plain_failure is not None:
            return self._verdict("failed", history, [f"Only plainly it failed: {plain_failure}"])
        wrong = self._wrong(agent, history)
        if not wrong:
            found = pairs(self.spec, self.plain.checkpoints, caller.checkpoints())
            self.states = len(found)
            wrong += judge_states(self.spec, self.lane.jvm, found, self.folder)
        if stray := [path.name for path in agent.checkpoints.iterdir()]:
            wrong.append(f"checkpoints of the script's own: {stray}")
        kind: Kind = "failed" if wrong else "refused" if history.refused else "equal"
        return self._verdict(kind, history, wrong)

    # --- running --------------------------------------------------------------------------------

    def _stage(self, name: str) -> Stage:
        return Stage(
            spec=self.spec, folder=self.folder / name, broker=self.broker, topics=f"{self.topics}-{name}"
        )

    # --- judging --------------------------------------------------------------------------------

    def _wrong(self, agent: Stage, history: History) -> list[str]:
        wrong = []
        for place, query in enumerate(self.spec.queries):
            found = agent.written(place)
            allowed = self._allowed(place, query, history)
            wrong += [
                f"query {place}: {each}"
                for each in judge(query, self._plain_rows.get(place, []), found, allowed)
            ]
        return wrong

    def _allowed(self, place: int, query: QuerySpec, history: History) -> Allowed:
        rewound = history.rewound
        if query.sink in ("kafka", "batch-append") and (history.killed or rewound is not None):
            return Allowed(any_known=True)
        if rewound is None or query.mode != "append":
            return Allowed()
        if query.sink not in _LOGGED:
            return Allowed(any_known=True)
        batch = rewound.batches.get(query.name or "query", -1)
        behind = [
            written.row
            for written in rewound.written[place]
            if written.batch is not None and written.batch > batch
        ]
        return Allowed(exactly=Counter(behind))

    def _judge_failure(
        self, failure: ScriptFailed, plain_failure: str | None, history: History, agent: Stage
    ) -> Verdict:
        """A script that fails plainly too fails alike; a refusal must not have written what is wrong."""
        if failure.code == "SCRIPT_FAILED":
            if plain_failure is not None and _error(plain_failure) in failure.text:
                return self._verdict("both-fail", history, [])
            wrong = [f"plainly: {plain_failure or 'no failure'}; under the agent: {failure.text[-1500:]}"]
            return self._verdict("failed", history, wrong)
        history.refused.append(failure.code)
        history.reasons.append(failure.text)
        wrong = []
        for place, query in enumerate(self.spec.queries):
            if plain_failure is None and query.source != "rate" and not query.is_keyed:
                known = {each.row for each in self._plain_rows[place]}
                if query.mode == "append" and any(w.row not in known for w in agent.written(place)):
                    wrong.append(f"query {place} wrote rows that it never writes plainly")
        return self._verdict("failed" if wrong else "refused", history, wrong)

    def _verdict(self, kind: Kind, history: History, problems: list[str]) -> Verdict:
        if malfunctions := _MALFUNCTIONS & set(history.refused):
            kind, problems = "failed", [*problems, f"{', '.join(malfunctions)} says nothing of the script"]
        return Verdict(
            kind=kind,
            codes=tuple(history.refused),
            problems=tuple(problems),
            done=tuple(history.done),
            missed=tuple(history.missed),
            reasons=tuple(history.reasons),
            states=self.states,
        )


def _error(line: str) -> str:
    """Return the name of the error in the last line of a traceback."""
    return line.partition(":")[0].strip().rpartition(".")[2]
