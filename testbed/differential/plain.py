"""Programs in a lane's JVM that run to their end: a script under plain Spark, and the reader of states."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.differential.inputs import PARTS
from testbed.differential.stage import driver_env, spark_conf
from testbed.differential.warm_jvm import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from testbed.differential.stage import Stage
    from testbed.differential.warm_jvm import WarmJvm

_HERE = Path(__file__).parent
_LOOK_S = 0.05
_PATIENCE_S = 240.0


def run_plain(jvm: WarmJvm, stage: Stage) -> str | None:
    """Run the stage's script over all its input; returns the last line of its error if it failed."""
    stage.feed.add(PARTS)
    stage.release()
    count = 0 if stage.spec.is_bounded else len(stage.spec.queries)
    argv = (str(_HERE / "plain_main.py"), str(count), str(stage.script), *stage.args)
    log = stage.folder / "driver.log"
    if _run(jvm, argv, stage.folder, log) == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] != " "]
    return next((line for line in reversed(lines) if "Error" in line or "Exception" in line), "unknown")


def read_states(jvm: WarmJvm, checkpoints: Sequence[Path], folder: Path) -> list[Mapping[str, Any] | None]:
    """Return the state of each checkpoint: rows by operator and store."""
    question, answer, log = folder / "question.json", folder / "answer.json", folder / "state.log"
    question.write_text(json.dumps([str(path) for path in checkpoints]))
    argv = (str(_HERE / "state_main.py"), str(question), str(answer))
    if _run(jvm, argv, folder, log) != 0:
        raise RuntimeError(f"The states could not be read: {log.read_text()[-2000:]}")
    found: list[Mapping[str, Any] | None] = json.loads(answer.read_text())
    return found


def _run(jvm: WarmJvm, argv: Sequence[str], folder: Path, log: Path) -> int | None:
    conf = {**spark_conf(), "spark.master": "local[2]", "spark.app.name": "plain"}
    pid = jvm.run(argv, conf=conf, env=driver_env(folder), cwd=folder, log=log)
    until_s = time.monotonic() + _PATIENCE_S
    while jvm.driver_lives(pid):
        if time.monotonic() > until_s:
            jvm.kill()
            raise TimeoutError(f"{argv[0]} did not end; its log is {log}.")
        time.sleep(_LOOK_S)
    return exit_code(pid)
