"""PySpark's readers, writers and listeners, wrapped so that an unmodified script runs under the agent."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.errors import UNSUPPORTED_MODE
from airflow_flinkstyle.agent.core.stream_options import StreamOptions, refuse_unsupported, schema_locations
from airflow_flinkstyle.agent.spark.agent import replace
from airflow_flinkstyle.agent.spark.held import wrap_held
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.agent.spark.starts import PySparkStart
from airflow_flinkstyle.kafka.login import set_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_flinkstyle.agent.spark.agent import Agent
    from airflow_flinkstyle.agent.spark.untyped import PySpark
    from airflow_flinkstyle.protocol.records import KafkaOverride

_SERVERS = "kafka.bootstrap.servers"


def overrides_for(
    rules: Sequence[KafkaOverride],
    role: str,
    settings: StreamOptions,
    *,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str | None]:
    """Return the options to set over the script's own: those of the rules that match role and servers.

    Logins that a rule names come from the environment; None unsets what the script gave for another one.
    """
    if (settings.format or "").lower() != "kafka":
        return {}
    servers = settings.options.get(_SERVERS)
    matching = [rule for rule in rules if rule.role == role and rule.servers == servers]
    options = {
        name: value
        for rule in matching
        for name, value in renamed_topics(settings.options, rule.rename).items()
    }
    options |= {name: value for rule in matching for name, value in rule.options.items()}
    return set_for(options, settings.options, environment)


def wrap(agent: Agent, rules: Sequence[KafkaOverride]) -> None:
    """Wrap PySpark's classes; called once, before the script runs."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    for cls in (DataStreamReader, DataStreamWriter, DataFrameReader, DataFrameWriter):
        _remember(cls)
    _remember_query(DataStreamWriter)
    for name in ("load", "table"):
        _follow_schema_before(DataStreamReader, name, agent)
    _override_before(DataStreamReader, "load", "source", rules)
    _override_before(DataFrameReader, "load", "source", rules)
    _override_before(DataFrameWriter, "save", "sink", rules)
    _start_through(DataStreamWriter, "start", agent, rules)
    _start_through(DataStreamWriter, "toTable", agent, rules)
    wrap_held(agent)
    wrap_listeners(agent)
    for stopped in (SparkSession, SparkContext):
        _drain_before(stopped, "stop", agent)
    _end_before_exit(agent)
    replace(SparkSession.Builder, "remote", lambda _original: _refuse_remote)


def refuse_connect() -> None:
    """Refuse Spark Connect by name: its streams do not run in this process.

    Raises:
        FlinkstyleError: ``UNSUPPORTED_MODE`` if the environment asks for it.
    """
    if "SPARK_REMOTE" in os.environ or os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        raise UNSUPPORTED_MODE.error(mode="Spark Connect", remedy="Unset SPARK_REMOTE and SPARK_API_MODE.")


def _refuse_remote(_builder: PySpark, _url: str) -> PySpark:
    raise UNSUPPORTED_MODE.error(mode="Spark Connect", remedy="Build the session without .remote(...).")


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
            settings = StreamOptions.of(self)
            settings.format, settings.function = source, None
            return original(self, source)

        return call

    replace(cls, "option", option)
    replace(cls, "options", options)
    replace(cls, "format", form)


def _remember_query(cls: PySpark) -> None:
    def named(attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: PySpark, *given: str, **named: str) -> PySpark:
                result = original(self, *given, **named)
                setattr(StreamOptions.of(self), attribute, (*given, *named.values())[0])
                return result

            return call

        return wrapper

    def trigger(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, **kinds: PySpark) -> PySpark:
            StreamOptions.of(self).trigger = {
                name: value for name, value in kinds.items() if value is not None
            }
            refuse_unsupported(StreamOptions.of(self))  # some versions of Spark do not refuse it
            return original(self, **kinds)

        return call

    def each(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: PySpark, function: PySpark) -> PySpark:
                settings = StreamOptions.of(self)
                settings.format, settings.function = name, function  # the name as Spark itself calls it
                return original(self, function)

            return call

        return wrapper

    replace(cls, "queryName", named("query_name"))
    replace(cls, "outputMode", named("output_mode"))
    replace(cls, "trigger", trigger)
    for name in ("foreach", "foreachBatch"):
        replace(cls, name, each(name))


def _follow_schema_before(cls: PySpark, name: str, agent: Agent) -> None:
    """Let Delta read the log of a table's schemas where the agent has put it."""

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, *args: PySpark, **options: PySpark) -> PySpark:
            settings = StreamOptions.of(self)
            for option, location in schema_locations(settings.options, settings.format).items():
                self.option(option, agent.schema_location(PySparkSession.of(self._spark), location))
            return original(self, *args, **options)

        return call

    replace(cls, name, wrapper)


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

    replace(cls, name, wrapper)


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
            settings = StreamOptions.of(self)
            for key, value in overrides_for(rules, "sink", settings).items():
                self.option(key, value)
            start = PySparkStart(self, functools.partial(original, self, target))
            return agent.start_query(start, settings)

        return call

    replace(cls, name, wrapper)


def _drain_before(cls: PySpark, name: str, agent: Agent) -> None:
    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark) -> PySpark:
            agent.script_stops_spark()
            return original(self)

        return call

    replace(cls, name, wrapper)


def _end_before_exit(agent: Agent) -> None:
    """Let ``os._exit`` end the run first; a process that the script forked just ends."""
    driver = os.getpid()

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(status: int) -> PySpark:
            return original(agent.script_leaves(status) if os.getpid() == driver else status)

        return call

    replace(os, "_exit", wrapper)


_PATTERN = "subscribePattern"


def renamed_topics(options: Mapping[str, str], rename: Mapping[str, str]) -> dict[str, str]:
    """Return the option that names a source's topics as it must be now; nothing if it may stay.

    Args:
        options: What the script set, with names in lower case.
        rename: Every topic the script reads, as it writes it -> topic to read instead, or several with
            commas.

    Raises:
        FlinkstyleError: ``UNSUPPORTED_MODE`` if partitions are assigned by number in a topic that was split
            or merged.
    """
    if not rename:
        return {}
    found = {}
    if "subscribe" in options:
        found["subscribe"] = _subscribed(options["subscribe"], rename)
    if "assign" in options:
        found["assign"] = _assigned(options["assign"], rename)
    if _PATTERN.lower() in options:
        found[_PATTERN] = _pattern(options[_PATTERN.lower()], rename)
    return {name: value for name, value in found.items() if value != options[name.lower()]}


def _subscribed(text: str, rename: Mapping[str, str]) -> str:
    names = [new for topic in text.split(",") for new in _split(rename.get(topic.strip(), topic))]
    return ",".join(dict.fromkeys(names))


def _assigned(text: str, rename: Mapping[str, str]) -> str:
    given = json.loads(text)
    moved = {rename.get(topic, topic): numbers for topic, numbers in given.items()}
    if len(moved) < len(given) or any("," in topic for topic in moved):
        raise UNSUPPORTED_MODE.error(
            mode=f"assigned partitions of topics that are split or merged ({text} as {dict(rename)})",
            remedy="Let the script use subscribe, or set the option assign for the new cluster "
            "(kafka_options).",
        )
    return json.dumps(moved)


def _pattern(pattern: str, rename: Mapping[str, str]) -> str:
    """Return a pattern for the new names; where all of them got one prefix, also for topics to come."""
    matched = {topic: new for topic, new in rename.items() if re.fullmatch(pattern, topic)}
    prefix = _common_prefix(matched)
    if prefix is not None:
        return f"{re.escape(prefix)}(?:{pattern})" if prefix else pattern
    names = dict.fromkeys(name for new in matched.values() for name in _split(new))
    return "|".join(map(re.escape, names)) or pattern


def _common_prefix(rename: Mapping[str, str]) -> str | None:
    prefixes = {new.removesuffix(topic) if new.endswith(topic) else None for topic, new in rename.items()}
    return next(iter(prefixes)) if len(prefixes) == 1 else None


def _split(names: str) -> Collection[str]:
    return [name.strip() for name in names.split(",")]


def wrap_listeners(agent: Agent) -> None:
    """Wrap how a script registers listeners, and takes them away."""
    from pyspark.sql.streaming.query import StreamingQueryManager

    known: dict[int, tuple[PySpark, PySpark]] = {}
    """``id`` of the script's listener -> itself, so that no other object gets the ``id``, and our wrapper."""

    def add(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, listener: PySpark) -> PySpark:
            known.setdefault(id(listener), (listener, discreet(agent, listener)))
            return original(self, known[id(listener)][1])

        return call

    def remove(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, listener: PySpark) -> PySpark:
            return original(self, known.pop(id(listener), (listener, listener))[1])

        return call

    replace(StreamingQueryManager, "addListener", add)
    replace(StreamingQueryManager, "removeListener", remove)


class _OwnEvents:
    """Which events of a listener the agent has caused."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tried: set[str] = set()
        """Ids of copies that the agent runs before the takeover."""

    def is_start(self, event: PySpark) -> bool:
        if not self._agent.runs_job:
            self._tried.add(str(event.id))
        return self.is_of_copy(event) or self._agent.held.is_own_start(str(event.id))

    def is_of_copy(self, event: PySpark) -> bool:
        return str(event.id) in self._tried

    def is_end(self, event: PySpark) -> bool:
        ended = event.exception is None and self._agent.held.is_own_end(str(event.id), str(event.runId))
        return self.is_of_copy(event) or ended


def discreet(agent: Agent, listener: PySpark) -> PySpark:
    """Return a listener that passes on to the script's listener what the script, or Spark, has done.

    It does not pass on what the agent does: a listener that ends Spark when a query terminates would end a
    job that is only held for a savepoint. Listeners that Scala or a setting registers are removed for that
    time (``session``).
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    own = _OwnEvents(agent)

    class Discreet(StreamingQueryListener):
        def onQueryStarted(self, event: PySpark) -> None:
            _pass_on(listener.onQueryStarted, event, unless=own.is_start(event))

        def onQueryProgress(self, event: PySpark) -> None:
            _pass_on(listener.onQueryProgress, event, unless=own.is_of_copy(event.progress))

        def onQueryIdle(self, event: PySpark) -> None:
            _pass_on(listener.onQueryIdle, event, unless=own.is_of_copy(event))

        def onQueryTerminated(self, event: PySpark) -> None:
            _pass_on(listener.onQueryTerminated, event, unless=own.is_end(event))

    return Discreet()


def _pass_on(method: Callable[[Any], None], event: PySpark, *, unless: bool) -> None:
    if not unless:
        method(event)
