"""PySpark's readers and writers, wrapped so that an unmodified script runs under the agent."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from airflow_flinkstyle.agent.errors import UnsupportedModeError
from airflow_flinkstyle.agent.script.topics import renamed_topics
from airflow_flinkstyle.agent.stream_options import StreamOptions
from airflow_flinkstyle.kafka.login.driver import set_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.agent.jvm.untyped import PySpark
    from airflow_flinkstyle.agent.queries.hold import Hold
    from airflow_flinkstyle.protocol.records import KafkaOverride

_SERVERS = "kafka.bootstrap.servers"
_SHORTEST_S = 0.001


class Agent(Protocol):
    """What the wrappers call."""

    def start_query(self, writer: PySpark, seen: StreamOptions, run: Callable[[], PySpark]) -> PySpark:
        """Start a query in place of Spark."""

    def hold(self) -> bool:
        """Return False at once, or True when everything has drained if it began to."""

    def script_stops_spark(self) -> None:
        """Drain before the script stops its session."""

    @property
    def held(self) -> Hold:
        """What holds queries for a while, to be asked about them."""


def overrides_for(
    rules: Sequence[KafkaOverride],
    role: str,
    seen: StreamOptions,
    *,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str | None]:
    """Return the options to set over the script's own: those of the rules that match role and servers.

    Logins that a rule names come from the environment; None unsets what the script gave for another one.
    """
    if (seen.format or "").lower() != "kafka":
        return {}
    servers = seen.options.get(_SERVERS)
    matching = [rule for rule in rules if rule.role == role and rule.servers == servers]
    options = {
        name: value for rule in matching for name, value in renamed_topics(seen.options, rule.rename).items()
    }
    options |= {name: value for rule in matching for name, value in rule.options.items()}
    return set_for(options, seen.options, environment)


def refuse_unsupported(seen: StreamOptions) -> None:
    """Refuse modes of Spark by name.

    Raises:
        UnsupportedModeError: For real-time mode, continuous processing, asynchronous progress tracking.
    """
    if "realTime" in seen.trigger:
        raise UnsupportedModeError.named("real-time mode", "Use trigger(processingTime=...).")
    if "continuous" in seen.trigger:
        raise UnsupportedModeError.named("continuous processing", "Use trigger(processingTime=...).")
    if seen.options.get("asyncprogresstrackingenabled", "false").lower() == "true":
        raise UnsupportedModeError.named(
            "asynchronous progress tracking", "Remove the option asyncProgressTrackingEnabled."
        )


def wrap(agent: Agent, rules: Sequence[KafkaOverride]) -> None:
    """Wrap PySpark's classes; called once, before the script runs."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    for cls in (DataStreamReader, DataStreamWriter, DataFrameReader, DataFrameWriter):
        _remember(cls)
    _remember_query(DataStreamWriter)
    _override_before(DataStreamReader, "load", "source", rules)
    _override_before(DataFrameReader, "load", "source", rules)
    _override_before(DataFrameWriter, "save", "sink", rules)
    _start_through(DataStreamWriter, "start", agent, rules)
    _start_through(DataStreamWriter, "toTable", agent, rules)
    _await_again(StreamingQuery, "awaitTermination", agent, _this_query)
    _await_again(StreamingQueryManager, "awaitAnyTermination", agent, _any_query)
    _replace(StreamingQuery, "stop", lambda original: _stop_for_good(original, agent))
    _active_while_held(StreamingQuery, agent)
    _list_held(StreamingQueryManager, agent)
    _replace(StreamingQueryManager, "get", lambda original: _get_held(original, agent))
    for stopped in (SparkSession, SparkContext):
        _drain_before(stopped, "stop", agent)
    _replace(SparkSession.Builder, "remote", lambda _original: _refuse_remote)


def refuse_connect() -> None:
    """Refuse Spark Connect by name; it has no streams this process could hold.

    Raises:
        UnsupportedModeError: If the environment asks for it.
    """
    if "SPARK_REMOTE" in os.environ or os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        raise UnsupportedModeError.named("Spark Connect", "Unset SPARK_REMOTE and SPARK_API_MODE.")


def _refuse_remote(_builder: PySpark, _url: str) -> PySpark:
    raise UnsupportedModeError.named("Spark Connect", "Build the session without .remote(...).")


def _replace(cls: PySpark, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(cls, name)
    setattr(cls, name, functools.wraps(original)(wrapper(original)))


def _remember(cls: PySpark) -> None:
    def option(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, key: str, value: PySpark) -> PySpark:
            StreamOptions.of(self).set_options({key: value})
            return original(self, key, value)

        return call

    def options(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, **values: PySpark) -> PySpark:
            StreamOptions.of(self).set_options(values)
            return original(self, **values)

        return call

    def form(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, source: str) -> PySpark:
            seen = StreamOptions.of(self)
            seen.format, seen.function = source, None
            return original(self, source)

        return call

    _replace(cls, "option", option)
    _replace(cls, "options", options)
    _replace(cls, "format", form)


def _remember_query(cls: PySpark) -> None:
    def query_name(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, queryName: str) -> PySpark:  # Spark's name
            result = original(self, queryName)
            StreamOptions.of(self).query_name = queryName
            return result

        return call

    def trigger(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, **kinds: PySpark) -> PySpark:
            StreamOptions.of(self).trigger = {
                name: value for name, value in kinds.items() if value is not None
            }
            refuse_unsupported(StreamOptions.of(self))  # Spark has no answer of its own for some versions
            return original(self, **kinds)

        return call

    def each(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: PySpark, function: PySpark) -> PySpark:
                seen = StreamOptions.of(self)
                seen.format, seen.function = name, function  # the name as Spark itself calls it
                return original(self, function)

            return call

        return wrapper

    _replace(cls, "queryName", query_name)
    _replace(cls, "trigger", trigger)
    for name in ("foreach", "foreachBatch"):
        _replace(cls, name, each(name))


def _override_before(cls: PySpark, name: str, role: str, rules: Sequence[KafkaOverride]) -> None:
    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            self: PySpark, path: PySpark = None, format: str | None = None, *args: PySpark, **options: PySpark
        ) -> PySpark:
            own = {key: options.pop(key) for key in ("schema", "mode", "partitionBy") if key in options}
            if format is not None:
                self.format(format)
            if options:
                self.options(**options)
            for key, value in overrides_for(rules, role, StreamOptions.of(self)).items():
                self.option(key, value)
            return original(self, path, None, *args, **own)

        return call

    _replace(cls, name, wrapper)


def _start_through(cls: PySpark, name: str, agent: Agent, rules: Sequence[KafkaOverride]) -> None:
    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            self: PySpark,
            target: str | None = None,
            /,  # "path" is an option of "toTable"
            format: str | None = None,
            outputMode: str | None = None,
            partitionBy: PySpark = None,
            queryName: str | None = None,
            **options: PySpark,
        ) -> PySpark:
            target = options.pop("path" if name == "start" else "tableName", target)
            self.options(**options)
            StreamOptions.of(self).set_target(name, target)
            if outputMode is not None:
                self.outputMode(outputMode)
            if partitionBy is not None:
                self.partitionBy(partitionBy)
            if format is not None:
                self.format(format)
            if queryName is not None:
                self.queryName(queryName)
            seen = StreamOptions.of(self)
            for key, value in overrides_for(rules, "sink", seen).items():
                self.option(key, value)
            return agent.start_query(self, seen, functools.partial(original, self, target))

        return call

    _replace(cls, name, wrapper)


def _this_query(handle: PySpark, hold: Hold) -> Callable[[], bool]:
    run_id = handle.runId
    return lambda: hold.went_on(handle, run_id)


def _any_query(_manager: PySpark, hold: Hold) -> Callable[[], bool]:
    seen = hold.count
    return lambda: hold.any_went_on(seen)


def _await_again(
    cls: PySpark, name: str, agent: Agent, begin: Callable[[PySpark, Hold], Callable[[], bool]]
) -> None:
    """Await once more what was only held; return when everything has drained if the run ends."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, timeout: float | None = None) -> PySpark:
            until_s = time.monotonic() + (timeout or 0)
            while True:
                result, error, went_on = None, None, begin(self, agent.held)
                try:
                    result = original(self, timeout)
                except Exception as raised:  # noqa: BLE001  # raised again below
                    error = raised
                again = result is not False and went_on()
                if agent.hold():
                    return result  # what a query says while it is drained is not the script's business
                if not again:
                    break
                if timeout is not None:
                    timeout = max(_SHORTEST_S, until_s - time.monotonic())
            if error is not None:
                raise error
            return result

        return call

    _replace(cls, name, wrapper)


def _stop_for_good(original: Callable[..., Any], agent: Agent) -> Callable[..., Any]:
    def call(self: PySpark) -> PySpark:
        agent.held.leave_stopped(self)
        agent.held.follow(self, self.runId)
        return original(self)

    return call


def _active_while_held(cls: PySpark, agent: Agent) -> None:
    original = cls.isActive.fget

    def is_active(self: PySpark) -> bool:
        if agent.held.is_held(self):
            return True
        agent.held.follow(self, self.runId)
        return bool(original(self))

    cls.isActive = property(is_active)


def _list_held(cls: PySpark, agent: Agent) -> None:
    original = cls.active.fget
    cls.active = property(lambda self: agent.held.with_held(original(self)))


def _get_held(original: Callable[..., Any], agent: Agent) -> Callable[..., Any]:
    def call(self: PySpark, id: str) -> PySpark:  # Spark's name
        handle = agent.held.handle(id)
        return original(self, id) if handle is None else handle

    return call


def _drain_before(cls: PySpark, name: str, agent: Agent) -> None:
    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark) -> PySpark:
            agent.script_stops_spark()
            return original(self)

        return call

    _replace(cls, name, wrapper)
