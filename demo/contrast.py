"""The same migration without a rewrite: what would be lost or mixed up."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.storage.local import LocalStore
from testbed.drivers import SPARK_PYTHON, spark_env
from testbed.judge import Judgement, StateReader, judge
from testbed.ledger import read_ledger
from testbed.scenario import QUERY

if TYPE_CHECKING:
    from testbed.scenario import OrdersScenario

TIMEOUT_S = 120


class Contrast:
    """A copy of the savepoint, not rewritten, resumed against ``new`` by plain Spark."""

    def __init__(self, orders: OrdersScenario, savepoint_id: str) -> None:
        self._orders = orders
        self._folder = orders.folder / "contrast"
        self._folder.mkdir()
        manifest = orders.client.view.repository.read(savepoint_id)
        (query,) = manifest.queries
        restore_query(manifest, query, orders.client.view.repository, LocalStore(self._folder / QUERY))
        self._process = self._resume()

    def _resume(self) -> subprocess.Popen[bytes]:
        """Run the unmodified script as anybody would: another address, the same checkpoint."""
        orders = self._orders
        command = [str(SPARK_PYTHON.parent / "spark-submit"), "--master", orders.target.master]
        for name, value in orders.target.conf.items():
            command += ["--conf", f"{name}={value}"]
        command += [orders.spec.script, "--bootstrap", orders.new.bootstrap, "--topic", orders.topic]
        command += ["--output", str(self._folder / "output"), "--checkpoint", str(self._folder / QUERY)]
        with (self._folder / "driver.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603  (our own example)
                [*command, "--available-now"], env=spark_env(), stdout=log, stderr=log
            )

    def judge(self, reader: StateReader) -> Judgement:
        """Wait until it has read everything, and judge its state as the real one is judged."""
        if self._process.wait(TIMEOUT_S) != 0:
            raise RuntimeError(f"The contrast run failed; see {self._folder / 'driver.log'}")
        return judge(read_ledger(self._orders.ledger), reader.read(self._folder / QUERY))

    def end(self) -> None:
        """End the driver if it still runs."""
        self._process.kill()
        self._process.wait()
