"""A script under plain Spark, over all of its input."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.differential.inputs import PARTS
from testbed.differential.stage import driver_env, spark_conf
from testbed.differential.warm_jvm import exit_code

if TYPE_CHECKING:
    from testbed.differential.stage import Stage
    from testbed.differential.warm_jvm import WarmJvm

_MAIN = Path(__file__).with_name("plain_main.py")
_LOOK_S = 0.03
_PATIENCE_S = 240.0


def run_plain(jvm: WarmJvm, stage: Stage) -> str | None:
    """Run the stage's script to its end; returns the last line of its error if it failed."""
    stage.feed.add(PARTS)
    count = 0 if stage.spec.is_bounded else len(stage.spec.queries)
    log = stage.folder / "driver.log"
    pid = jvm.run(
        (str(_MAIN), str(count), str(stage.script), *stage.args),
        conf={**spark_conf(), "spark.master": "local[2]", "spark.app.name": "plain"},
        env=driver_env(stage.folder),
        cwd=stage.folder,
        log=log,
    )
    until_s = time.monotonic() + _PATIENCE_S
    while jvm.driver_lives(pid):
        if time.monotonic() > until_s:
            jvm.kill()
            raise TimeoutError(f"The plain run did not end; its log is {log}.")
        time.sleep(_LOOK_S)
    if exit_code(pid) == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] != " "]
    return next((line for line in reversed(lines) if "Error" in line or "Exception" in line), "unknown")
