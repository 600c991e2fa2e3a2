"""``spark-submit launcher.py --root URI --job NAME --claim ID --generation N -- app.py args``.

Runs an unmodified PySpark script under the agent. Exit codes: see ``process``.
"""

from __future__ import annotations

import argparse
import logging
import os
import runpy
import sys
import threading
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.agent.core.runtime import Runtime

MODULE = "-m"
"""In place of a script: its first argument names a module or a package to run, as for Python itself."""
log = logging.getLogger("airflow_flinkstyle.agent.launcher")


def main(argv: Sequence[str]) -> int:
    """Run the script and return the driver's exit code."""
    arguments = _parse(argv)
    _log_to_stderr()
    from airflow_flinkstyle.agent.core.board.takeover import NotOursError
    from airflow_flinkstyle.agent.core.errors import SupersededError
    from airflow_flinkstyle.agent.core.process import EXIT_DONE, EXIT_FAILED
    from airflow_flinkstyle.agent.spark.log_rotation import keep_log_short
    from airflow_flinkstyle.errors import FlinkstyleError

    keep_log_short(os.environ)
    try:
        runtime = _open(arguments)
    except (NotOursError, SupersededError) as reason:
        log.warning("Leaving job %s before Spark starts: %s", arguments.job, reason)
        return EXIT_DONE
    except FlinkstyleError as error:
        log.error("%s: %s", error.code, error)  # noqa: TRY400  # its three sentences are enough
        return EXIT_FAILED
    _run_to_end(runtime, arguments.script, arguments.args)
    runtime.close()
    return runtime.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launcher.py", description="Run a PySpark script under the agent.")
    parser.add_argument("--root", required=True, help="savepoint root: s3://bucket/prefix or a folder")
    parser.add_argument("--job", required=True, help="name of the job")
    parser.add_argument("--claim", required=True, help="id of the generation's claim")
    parser.add_argument("--digest", default="", help="SHA-256 of the claim, as the caller verified it")
    parser.add_argument("--generation", required=True, type=int, help="claimed by the caller")
    parser.add_argument("--submit", default=0, type=int, help="the submit of this process; 0 for none")
    parser.add_argument("script", help="the PySpark script, or -m")
    parser.add_argument(
        "args", nargs=argparse.REMAINDER, help="the script's own arguments; with -m the module's name first"
    )
    return parser.parse_args(list(argv))


class _WithoutSecrets(logging.Formatter):
    """Spark's errors may show a plan with all its options, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        from airflow_flinkstyle.kafka.login import scrub

        return scrub(super().format(record), os.environ)


def _log_to_stderr() -> None:
    logger = logging.getLogger("airflow_flinkstyle")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_WithoutSecrets("%(asctime)s %(levelname)s flinkstyle: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _open(arguments: argparse.Namespace) -> Runtime:
    """Begin this process's incarnation, wrap PySpark, and write the first heartbeat."""
    from airflow_flinkstyle.agent.core.board import takeover
    from airflow_flinkstyle.agent.core.process import EXIT_JVM_GONE
    from airflow_flinkstyle.agent.core.run.reasons import Signalled
    from airflow_flinkstyle.agent.core.runtime import Runtime
    from airflow_flinkstyle.agent.spark.compare.writes import refuse_writes
    from airflow_flinkstyle.agent.spark.executors import ExecutorWatch
    from airflow_flinkstyle.agent.spark.process import DriverProcess
    from airflow_flinkstyle.agent.spark.signals import on_sigterm
    from airflow_flinkstyle.agent.spark.wrapping import wrap
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.pulse import PULSES_VARIABLE
    from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.open import open_store
    from airflow_flinkstyle.types import Generation

    store, generation = open_store(arguments.root), Generation(arguments.generation)
    board, process = JobBoard(store, arguments.job), DriverProcess()
    if not process.had_jvm():
        log.error("The JVM has ended: no run is begun")
        sys.exit(EXIT_JVM_GONE)
    claim = takeover.submitted_claim(board, generation, arguments.claim, digest=arguments.digest)
    keys = os.environ.pop(ORDER_KEYS_VARIABLE, "")  # the script has no use for them
    driver_run = takeover.begin(
        board,
        generation,
        process,
        submit=arguments.submit,
        claim=claim,
        order_keys=tuple(keys.split(",")) if keys else (),
    )
    runtime = Runtime(board, SavepointRepository(store, arguments.job), driver_run, process)
    wrap(runtime, driver_run.claim.overrides)
    if driver_run.claim.is_drill:
        refuse_writes()  # past its queries, if it is compared
    on_sigterm(lambda: runtime.finish(Signalled()))
    ExecutorWatch(process).start()
    runtime.open(pulses=os.environ.get(PULSES_VARIABLE) == "true")
    return runtime


def _run_to_end(runtime: Runtime, script: str, args: Sequence[str]) -> None:
    """Run the script, then its queries until they end; afterwards the run has ended."""
    from airflow_flinkstyle.agent.core.run.reasons import Failure, ScriptEnded, Signalled
    from airflow_flinkstyle.agent.spark.wrapping import refuse_connect
    from airflow_flinkstyle.errors import FlinkstyleError

    try:
        refuse_connect()
        _run_script(script, args)
        runtime.await_queries(besides=_script_threads)
    except SystemExit as exit_:
        if exit_.code in (None, 0):
            runtime.finish(ScriptEnded())
        else:
            runtime.finish(Failure("SCRIPT_FAILED", _exit_reason(exit_)))
    except KeyboardInterrupt:
        runtime.finish(Signalled())
    except BaseException as error:  # whatever the script raises ends the run
        if not isinstance(error, FlinkstyleError):
            log.exception("The script, or a query of it, failed")
        runtime.finish(Failure.of(error))
    else:
        runtime.finish(ScriptEnded())


def _run_script(script: str, args: Sequence[str]) -> None:
    sys.argv = [script, *args]
    if script == MODULE:
        sys.path.insert(0, str(Path.cwd()))  # as python -m does
        sys.argv = list(args)
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        return
    place = _located(script)
    sys.path.insert(0, str(place.resolve().parent))  # as python itself does
    runpy.run_path(str(place), run_name="__main__")


def _located(script: str) -> Path:
    """Return where a script is: at its path, or where Spark has put what it fetched for this driver."""
    places = [Path(entry) / script for entry in sys.path] if "/" not in script else []
    return next((place for place in [Path(script), *places] if place.is_file()), Path(script))


def _exit_reason(exit_: SystemExit) -> str:
    """Return a script's exit code, and the reason: an error before it, or a refused command line."""
    reason = str(exit_.__context__ or "") or _refused_arguments(exit_)
    return f"The script left with exit code {exit_.code}{f': {reason}' if reason else ''}."


def _refused_arguments(exit_: SystemExit) -> str:
    """Return the message of ``argparse`` if it refused the command line; else empty."""
    frames = (frame for frame, _ in traceback.walk_tb(exit_.__traceback__))
    messages = (
        frame.f_locals.get("message", "")
        for frame in frames
        if (frame.f_code.co_name, frame.f_globals.get("__name__")) == ("error", "argparse")
    )
    return str(next(messages, ""))


def _script_threads() -> list[threading.Thread]:
    mine = threading.current_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not mine]


def _leave_own_folder() -> None:
    """Python put this file's folder first on the path: its modules would shadow others of their names."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    try:
        import airflow_flinkstyle
    except ImportError:
        if not (here.parent / "agent" / "launcher.py").exists():  # Spark has shipped this file alone
            sys.exit(
                f"airflow_flinkstyle was expected in {sys.executable}, found none. Nothing was started. "
                'Install it there, or set "agent": "py-files" in the Spark connection\'s extra.'
            )
        sys.path.append(str(here.parent.parent))
        return
    if find_spec("airflow_flinkstyle.agent") is None:
        sys.exit(
            f"The agent was expected in airflow_flinkstyle of {sys.executable}, found none in "
            f"{Path(airflow_flinkstyle.__file__).parent}. Nothing was started. Install a whole wheel there."
        )


if __name__ == "__main__":
    _leave_own_folder()
    # This file is the caller's, and the driver's package may be of another version: the two share this
    # command line and the protocol, but no function.
    from airflow_flinkstyle.agent.launcher import main as main_of_the_driver

    sys.exit(main_of_the_driver(sys.argv[1:]))
