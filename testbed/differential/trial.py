"""One script, plainly and under the agent, and the verdict."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.differential import caller as callers
from testbed.differential.caller import Caller, History, ScriptFailed, Stuck
from testbed.differential.deployment import WarmDeployment
from testbed.differential.inputs import PARTS
from testbed.differential.judge import Allowed, judge
from testbed.differential.spec import ScriptSpec
from testbed.differential.stage import Stage, driver_env, spark_conf
from testbed.differential.warm_jvm import exit_code

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from testbed.differential.deployment import Lane
    from testbed.differential.outputs import Written
    from testbed.differential.plan import Plan
    from testbed.differential.spec import QuerySpec
    from testbed.kafka import Broker

PLAIN_MAIN = Path(__file__).with_name("plain_main.py")
_LOOK_S = 0.03
_PLAIN_S = 120.0
_LOGGED = frozenset(["json", "parquet", "delta", "batch-txn", "batch-remember"])
"""Sinks of whose rows the batch is known, so that a rewind's doubled rows can be counted."""

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
    seconds: float = 0.0


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
    plain: Stage = field(init=False)
    _plain_rows: dict[int, list[Written]] = field(default_factory=dict)

    def run(self) -> Verdict:
        """Return the verdict; an error of the test bed itself is a failure too."""
        began_s = time.monotonic()
        try:
            verdict = self._run()
        except Exception:  # noqa: BLE001  # told with the seed
            verdict = Verdict(kind="failed", problems=(traceback.format_exc(),))
        from dataclasses import replace

        return replace(verdict, seconds=round(time.monotonic() - began_s, 2))

    def _run(self) -> Verdict:
        plain_failure = self._run_plain()
        if plain_failure is None:
            self._plain_rows = {
                place: self.plain.written(place)
                for place, query in enumerate(self.spec.queries)
                if query.source != "rate"
            }
        agent = self._stage("agent")
        caller = Caller(
            agent,
            self.own_deployment or WarmDeployment(lane=self.lane),
            expect_kill=self.lane.expect_kill if self.own_deployment is None else lambda: None,
            conf=self.own_conf,
            is_right=lambda history: not self._wrong(agent, history),
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
        if stray := [path.name for path in agent.checkpoints.iterdir()]:
            wrong.append(f"checkpoints of the script's own: {stray}")
        kind: Kind = "failed" if wrong else "refused" if history.refused else "equal"
        return self._verdict(kind, history, wrong)

    # --- running --------------------------------------------------------------------------------

    def _stage(self, name: str) -> Stage:
        return Stage(
            spec=self.spec, folder=self.folder / name, broker=self.broker, topics=f"{self.topics}-{name}"
        )

    def _run_plain(self) -> str | None:
        """Run the script plainly; returns how it failed."""
        self.plain = stage = self._stage("plain")
        stage.feed.add(PARTS)
        count = 0 if self.spec.is_bounded else len(self.spec.queries)
        jvm, log = self.lane.jvm, stage.folder / "driver.log"
        pid = jvm.run(
            (str(PLAIN_MAIN), str(count), str(stage.script), *stage.args),
            conf={**spark_conf(), "spark.master": "local[2]", "spark.app.name": "plain"},
            env=driver_env(stage.folder),
            cwd=stage.folder,
            log=log,
        )
        until_s = time.monotonic() + _PLAIN_S
        while jvm.driver_lives(pid):
            if time.monotonic() > until_s:
                jvm.kill()
                raise TimeoutError(f"The plain run did not end; its log is {log}.")
            time.sleep(_LOOK_S)
        if exit_code(pid) == 0:
            return None
        lines = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] != " "]
        return next((line for line in reversed(lines) if "Error" in line or "Exception" in line), "unknown")

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
        if query.sink == "kafka" and (history.killed or rewound is not None):
            return Allowed(any_known=True)
        if rewound is None or query.mode != "append":
            return Allowed()
        if query.sink not in _LOGGED:
            return Allowed(any_known=True)
        names = [query.name, "query"] if query.name is None else [query.name]
        batch = next((rewound.batches[name] for name in names if name in rewound.batches), -1)
        behind = [
            written.row
            for written in rewound.written[place]
            if written.batch is not None and written.batch > batch  # type: ignore[attr-defined]
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
        wrong = []
        for place, query in enumerate(self.spec.queries):
            if plain_failure is None and query.source != "rate" and not query.is_keyed:
                known = {each.row for each in self._plain_rows[place]}
                if query.mode == "append" and any(w.row not in known for w in agent.written(place)):
                    wrong.append(f"query {place} wrote rows that it never writes plainly")
        return self._verdict("failed" if wrong else "refused", history, wrong)

    def _verdict(self, kind: Kind, history: History, problems: list[str]) -> Verdict:
        return Verdict(
            kind=kind,
            codes=tuple(history.refused),
            problems=tuple(problems),
            done=tuple(history.done),
            missed=tuple(history.missed),
        )


def _error(line: str) -> str:
    """Return the name of the error in the last line of a traceback."""
    return line.partition(":")[0].strip().rpartition(".")[2]


__all__ = ["Trial", "Verdict", "callers"]
