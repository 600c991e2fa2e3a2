"""``flinkstyle savepoint state|state-diff|repartition|transform|convert|bootstrap|with-keys``.

Each asks another process, with PySpark.
"""

import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType

from airflow_flinkstyle.cli.factories import board_of, repository_of, require_job, whoami
from airflow_flinkstyle.cli.kafka.options import KafkaConfig, KafkaConn, the_cluster
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId, TimeoutS, Yes
from airflow_flinkstyle.cli.output import ExitCode, confirm, show, table
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.retention import dispose_of
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.rewrite.apply import picked_position
from airflow_flinkstyle.savepoint.manifest import KafkaPosition
from airflow_flinkstyle.state.steps import PROGRESS_PREFIX
from airflow_flinkstyle.typed_json import encode

_READER = "airflow_flinkstyle.state"
_PLACE_OF_TABLE = re.compile(r"((?P<query>[^/]*[^/\d][^/]*)/)?(?P<operator>\d+)(/(?P<state>[^/]+))?")
_LINES = 15
"""So many last lines of a failed reader's log are shown."""

Python = Annotated[
    str,
    typer.Option(
        envvar="PYSPARK_PYTHON",
        help="Interpreter with PySpark 4.0 or newer and airflow-flinkstyle.",
        show_default="this one",
    ),
]
Query = Annotated[
    str | None, typer.Option("--query", "-q", help="The query's name.", show_default="the only one")
]
Operator = Annotated[int, typer.Option(help="Number of the stateful operator.", min=0)]
Side = Annotated[Literal["left", "right"] | None, typer.Option(help="For a join: the rows of this side.")]
Variable = Annotated[str | None, typer.Option(help="For transformWithState: the state variable.")]
Timers = Annotated[bool, typer.Option("--timers", help="For transformWithState: its registered timers.")]
Store = Annotated[str | None, typer.Option(help="One of the operator's stores by name, as Spark keeps it.")]
Where = Annotated[str | None, typer.Option(help="Condition in SQL, such as \"key.customer = 'c1'\".")]
Limit = Annotated[int, typer.Option(help="Show at most so many rows.", min=1)]
Conf = Annotated[list[str] | None, typer.Option(help="Setting of Spark as name=value; may be repeated.")]


def state(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    query: Query = None,
    operator: Operator = 0,
    join_side: Side = None,
    variable: Variable = None,
    timers: Timers = False,
    store: Store = None,
    operators: Annotated[
        bool, typer.Option("--operators", help="List the stateful operators instead.")
    ] = False,
    where: Where = None,
    limit: Limit = 20,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Show keys and values of a savepoint's state, read by Spark from a copy; nothing is touched."""
    repository_of(root, job).read(savepoint_id)
    which = _which(query, operator, join_side, variable, store, timers=timers)
    request = _request(root, job, savepoint_id, which, where=where, limit=limit, conf=conf)
    _show(python, {**request, "operators": operators}, as_json=as_json)


def state_diff(
    before: SavepointId,
    after: SavepointId,
    root: Root,
    job: Job,
    query: Query = None,
    operator: Operator = 0,
    join_side: Side = None,
    variable: Variable = None,
    timers: Timers = False,
    store: Store = None,
    where: Where = None,
    limit: Limit = 20,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Show which keys of the state were added, removed or changed from one savepoint to another."""
    for savepoint_id in (before, after):
        repository_of(root, job).read(savepoint_id)
    which = _which(query, operator, join_side, variable, store, timers=timers)
    request = _request(root, job, before, which, where=where, limit=limit, conf=conf)
    _show(python, {**request, "against": after}, as_json=as_json)


def repartition(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    partitions: Annotated[
        int, typer.Option(help="Shuffle partitions that the job is to have from then on.", min=1)
    ],
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make a savepoint whose state is in another number of partitions; needs PySpark 4.2."""
    repository_of(root, job).read(savepoint_id)
    request = _request(root, job, savepoint_id, {}, conf=conf)
    _show(python, {**request, "partitions": partitions}, as_json=as_json)


def transform(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    query: Query = None,
    operator: Operator = 0,
    drop_keys: Annotated[
        str | None, typer.Option(help="Forget the keys for which this condition in SQL is true.")
    ] = None,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Give a field a new value: field=expression; may be repeated."),
    ] = None,
    where: Annotated[str | None, typer.Option(help="With --set: condition in SQL, for which keys.")] = None,
    add_column: Annotated[
        list[str] | None,
        typer.Option(help="Add a field for a version that keeps more: field=expression; may be repeated."),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="With --add-column: the field before which it is added.")
    ] = None,
    drop_column: Annotated[
        list[str] | None, typer.Option(help="Take a field away for a version that keeps less.")
    ] = None,
    rename_column: Annotated[
        list[str] | None, typer.Option(help="Give a field another name: field=name; may be repeated.")
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option(help="Give a field a type that holds more: field=BIGINT; may be repeated."),
    ] = None,
    drop_operator_state: Annotated[
        bool, typer.Option("--drop-operator-state", help="Leave the operator out for a version without it.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(
            help="Python file that defines changes: by operator, a function of a DataFrame.", exists=True
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="Only this side of a join, or variable of a transformWithState.")
    ] = None,
    look_at_others: Annotated[
        bool,
        typer.Option(
            "--others/--no-others", help="With --drop-keys: name the other savepoints that hold such keys."
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the first keys that would change.")
    ] = False,
    limit: Limit = 20,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make a savepoint with other state: written by Spark, compared key by key; needs PySpark 4.2.

    Several changes are done in the order in which the options are listed here.
    """
    changes: list[dict[str, object]] = []
    if drop_keys is not None:
        changes.append({"does": "DropKeys", "where": drop_keys})
    if values := _settings(set_values or [], "--set", "field=expression"):
        changes.append({"does": "SetValues", "values": values, "where": where or "true"})
    for name, default in _settings(add_column or [], "--add-column", "field=expression").items():
        changes.append({"does": "AddColumn", "name": name, "default": default, "before": before})
    changes += [{"does": "DropColumn", "name": name} for name in drop_column or []]
    for name, to in _settings(rename_column or [], "--rename-column", "field=name").items():
        changes.append({"does": "RenameColumn", "name": name, "to": to})
    for name, to in _settings(widen or [], "--widen", "field=type").items():
        changes.append({"does": "WidenColumn", "name": name, "to": to})
    if drop_operator_state:
        changes.append({"does": "DropOperatorState"})
    _refuse(bool(changes) == (script is not None), "give what to change, or --script")
    # An option that did nothing would change more than was asked for.
    _refuse(where is not None and not set_values, "give --where with --set only: --drop-keys has its own")
    _refuse(before is not None and not add_column, "give --before with --add-column only")
    of_script = script is not None and (state is not None or operator != 0)
    _refuse(of_script, "give no --operator or --state with --script, which names them itself")
    repository_of(root, job).read(savepoint_id)
    which = {"query": query, "operator": operator}
    request = _request(root, job, savepoint_id, which, limit=limit, conf=conf)
    asked = {
        "changes": changes,
        "state": state,
        "script": str(script.absolute()) if script is not None else None,
        "look_at_others": look_at_others,
        "dry_run": dry_run,
    }
    _show(python, {**request, "transform": asked}, as_json=as_json)


def _refuse(is_wrong: bool, text: str) -> None:
    if is_wrong:
        raise typer.BadParameter(text)


def with_keys(
    where: Annotated[str, typer.Argument(help="Condition in SQL, such as \"key.customer = 'c1'\".")],
    root: Root,
    job: Job,
    query: Query = None,
    dispose: Annotated[
        bool, typer.Option("--dispose", help="Dispose of those that hold such keys and are not protected.")
    ] = False,
    yes: Yes = False,
    timeout_s: TimeoutS = 300.0,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """List the savepoints whose state holds such keys; each is copied and read by Spark.

    Ends with 3 if a savepoint stays that holds such keys, or may hold some.
    """
    require_job(root, job)
    request = _request(root, job, "latest", {"query": query}, where=where, conf=conf)
    found = _ask(python, {**request, "holding": True})
    held = [row for row in found["rows"] if row["keys"]]
    if dispose and held:
        names = ", ".join(row["savepoint"] for row in held)
        confirm(f"Dispose of savepoints {names} of job {job}?", yes=yes)
    for row in found["rows"]:
        row["disposed"] = False
        if dispose and row["keys"]:
            row["disposed"], row["why"] = _dispose(root, job, row["savepoint"], timeout_s)
    found["columns"].append("disposed")
    show(found, _table(found), as_json=as_json)
    if not all(row["disposed"] for row in found["rows"]):
        raise typer.Exit(ExitCode.PARTLY)


def _dispose(root: str, job: str, savepoint_id: str, timeout_s: float) -> tuple[bool, str]:
    """Dispose of a savepoint, and return whether it is gone, or why not."""
    repository = repository_of(root, job)
    try:
        dispose_of(board_of(root, job), repository, savepoint_id, holder=whoami(), wait_s=timeout_s)
    except FlinkstyleError as error:
        return False, error.problem
    return True, ""


def convert(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    query: Query = None,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make a savepoint whose state is in RocksDB instead of Spark's default provider; needs PySpark 4.2."""
    repository_of(root, job).read(savepoint_id)
    request = _request(root, job, savepoint_id, {"query": query}, conf=conf)
    _show(python, {**request, "convert": True}, as_json=as_json)


def bootstrap(
    script: Annotated[Path, typer.Argument(help="The job's script.", exists=True, dir_okay=False)],
    root: Root,
    job: Job,
    args: Annotated[
        list[str] | None, typer.Option("--arg", help="Argument of the script; may be repeated.")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="The state of an operator: OPERATOR=SQL, such as 0=SELECT * FROM parquet.`/data/totals`; "
            "with QUERY/ in front, /STATE behind the operator where there are several; may be repeated.",
        ),
    ] = None,
    positions: Annotated[
        list[str] | None,
        typer.Option(
            "--position",
            help="Where a Kafka source begins: SOURCE=TOPICS@START, such as 0=orders@group:orders-etl; with "
            "QUERY/ in front where there are several; may be repeated.",
        ),
    ] = None,
    kafka_config: KafkaConfig = None,
    kafka_conn_id: KafkaConn = None,
    python: Python = sys.executable,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Make the first savepoint of a job that has never run: state from tables; needs PySpark 4.2.

    The script runs, but its queries do not start: nothing is read from its sources or written to its sinks.
    """
    asked = {
        "script": str(script.absolute()),
        "args": args or [],
        "tables": _tables_of(tables or []),
        "positions": {
            source: encode(_position(place, kafka_config, kafka_conn_id))
            for source, place in _settings(positions or [], "--position", "source=topics@start").items()
        },
    }
    request = _request(root, job, "latest", {}, conf=conf)
    _show(python, {**request, "bootstrap": asked}, as_json=as_json)


def _tables_of(texts: list[str]) -> list[dict[str, object]]:
    """Read all tables; two that do not fit together would be one table less."""
    tables = [_table_of(text) for text in texts]
    places = [(one["query"], one["operator"], one["state"]) for one in tables]
    _refuse(len({query is None for query, _, _ in places}) > 1, "name the query in every --table, or in none")
    wholes = [(query, operator) for query, operator, state in places if state is None]
    parts = {(query, operator) for query, operator, state in places if state is not None}
    is_twice = len(set(places)) < len(places) or not parts.isdisjoint(wholes)
    _refuse(is_twice, "give an operator one --table, or one for each of its states")
    return tables


def _table_of(text: str) -> dict[str, object]:
    """Read ``QUERY/OPERATOR/STATE=SQL``, of which only the operator must be: a query has more than digits."""
    place, equals, sql = text.partition("=")
    match = _PLACE_OF_TABLE.fullmatch(place)
    if not (match and equals and sql):
        raise typer.BadParameter(f"expected OPERATOR=SQL, found {text!r}", param_hint="--table")
    return {**match.groupdict(), "operator": int(match["operator"]), "sql": sql}


def _position(place: str, config: Path | None, conn_id: str | None) -> KafkaPosition:
    topics, at, start = place.partition("@")
    if not (topics and at and start):
        raise typer.BadParameter(f"expected SOURCE=TOPICS@START, found {place!r}", param_hint="--position")
    return picked_position(the_cluster(config, conn_id, "kafka"), topics.split(","), parse_rules(start))


def _which(
    query: str | None,
    operator: int,
    join_side: str | None,
    variable: str | None,
    store: str | None,
    *,
    timers: bool,
) -> dict[str, object]:
    return {
        "query": query,
        "operator": operator,
        "join_side": join_side,
        "variable": variable,
        "store": store,
        "timers": timers,
    }


def _request(
    root: str,
    job: str,
    savepoint: str,
    which: Mapping[str, object],
    *,
    where: str | None = None,
    limit: int = 1,
    conf: list[str] | None = None,
) -> dict[str, object]:
    return {
        "root": root,
        "job": job,
        "savepoint": savepoint,
        "which": which,
        "operators": False,
        "against": None,
        "partitions": None,
        "transform": None,
        "holding": False,
        "convert": False,
        "bootstrap": None,
        "where": where,
        "limit": limit,
        "conf": {"spark.master": "local[2]", **_settings(conf or [])},
    }


def _settings(given: list[str], option: str = "--conf", form: str = "name=value") -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if bad := [name for name, equals, _ in pairs if not (name and equals)]:
        raise typer.BadParameter(f"expected {form}, found {bad[0]!r}", param_hint=option)
    names = [name for name, _, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise typer.BadParameter(f"expected each name once, found {twice[0]!r} twice", param_hint=option)
    return {name: value for name, _, value in pairs}


def _show(python: str, request: Mapping[str, object], *, as_json: bool) -> None:
    found = _ask(python, request)
    show(found, _table(found), as_json=as_json)


def _table(found: Mapping[str, Any]) -> RenderableType:
    columns, rows = found["columns"], found["rows"]
    return table(*columns, rows=[[_text(row[name]) for name in columns] for row in rows])


def _text(value: object) -> object:
    """Return a struct or list as JSON, and anything else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _ask(python: str, request: Mapping[str, object]) -> dict[str, Any]:
    """Return the reader's answer.

    Raises:
        FlinkstyleError: Whatever the reader raised.
        BadInputError: If that interpreter cannot run the reader.
    """
    try:
        exit_code, output, log = _run([python, "-m", _READER, json.dumps(request)])
    except OSError as error:
        raise _no_reader(python, str(error)) from error
    last = output.strip().rpartition("\n")[2]
    if exit_code != 0 or not last.startswith("{"):
        raise _no_reader(python, log)
    answer: dict[str, Any] = json.loads(last)
    if error_fields := answer.get("error"):
        kind = type("ReaderError", (FlinkstyleError,), {"code": error_fields.pop("code")})
        raise kind(**error_fields)
    return answer


def _run(command: list[str]) -> tuple[int, str, str]:
    """Return exit code, output and the log's end; on a terminal, show the current step."""
    log: deque[str] = deque(maxlen=_LINES)
    with (
        Console(stderr=True).status("") as status,
        TemporaryFile("w+") as output,
        subprocess.Popen(  # noqa: S603 - the interpreter that a person names, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path.home(),
        ) as running,
    ):
        try:
            for line in running.stderr or ():
                if line.startswith(PROGRESS_PREFIX):
                    status.update(line.removeprefix(PROGRESS_PREFIX).strip())
                elif line.strip():
                    log.append(line.rstrip())
            exit_code = running.wait()
        except BaseException:
            running.kill()
            raise
        output.seek(0)
        return exit_code, output.read(), "\n".join(log)


def _no_reader(python: str, why: str) -> BadInputError:
    return BadInputError(
        f"Expected an interpreter that reads state with PySpark, found that {python} could not.\n{why}",
        state_after="The savepoint and the job are as they were.",
        remedy="Give --python the interpreter of an environment made with "
        "`pip install 'airflow-flinkstyle[spark]'`, and JAVA_HOME where Java is not found.",
    )
