"""MirrorMaker 2 between two brokers, exactly once and without aborted records."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from testbed import paths
from testbed.jvm import QUICK, from_archive
from testbed.keeper import Keeper
from testbed.ports import free_port, is_listening
from testbed.process import Service
from testbed.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_POLICIES = {
    "identity": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "default": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
}
log = logging.getLogger(__name__)

_GAVE_UP = "Task is being killed and will not recover until manually restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """What is mirrored, and how."""

    source_bootstrap: str
    target_bootstrap: str
    topics: str
    """Regular expression of topic names."""
    source_alias: str = "old"
    target_alias: str = "new"
    policy: Literal["identity", "default"] = "identity"
    """Whether a mirrored topic keeps its name or gets ``<source alias>.`` in front."""
    exactly_once: bool = True
    """False is MirrorMaker's default: duplicates after a crash, aborted records copied."""
    flush_interval_ms: int = 1000
    """How far ``mm2-offsets`` may lag behind what was mirrored, when not exactly once."""

    max_poll_records: int = 500
    """Exactly once, each poll is a transaction, and its marker takes an offset on the target."""
    fewest_bytes: int = 1_000_000
    """What a poll waits for, half a second at most. At once (1, as by default) each handful of records is a
    transaction, and the two brokers and the mirror of a story cost nearly as much as its drivers."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Anything else of MirrorMaker's configuration, e.g. transforms."""

    def as_properties(self, rest_port: int) -> dict[str, str]:
        """Return MirrorMaker's configuration."""
        source, target = self.source_alias, self.target_alias
        properties = {
            "clusters": f"{source}, {target}",
            f"{source}.bootstrap.servers": self.source_bootstrap,
            f"{target}.bootstrap.servers": self.target_bootstrap,
            f"{source}->{target}.enabled": "true",
            f"{target}->{source}.enabled": "false",
            f"{source}->{target}.topics": self.topics.replace("\\", "\\\\"),
            f"{source}->{target}.consumer.fetch.min.bytes": str(self.fewest_bytes),
            "replication.policy.class": _POLICIES[self.policy],
            "replication.factor": "1",
            "refresh.topics.interval.seconds": "2",
            "refresh.groups.interval.seconds": "5",
            "emit.checkpoints.interval.seconds": "5",
            "sync.topic.acls.enabled": "false",
            # Without the target's alias in front it is ignored and stays at a minute.
            f"{target}.offset.flush.interval.ms": str(self.flush_interval_ms),
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{rest_port}",
        }
        for topic in ("checkpoints", "heartbeats", "offset-syncs"):
            properties[f"{topic}.topic.replication.factor"] = "1"
        for storage in ("offset", "status", "config"):
            properties[f"{storage}.storage.replication.factor"] = "1"
        if self.exactly_once:
            properties[f"{source}.consumer.isolation.level"] = "read_committed"
            properties[f"{source}.consumer.max.poll.records"] = str(self.max_poll_records)
            properties[f"{target}.exactly.once.source.support"] = "enabled"
        return {**properties, **self.more}


class Mirror:
    """The process: start, stop, kill, restart; its positions live in the target cluster.

    Inside ``with`` it is started again whenever it dies: on a busy machine a task of MirrorMaker 4.3 gives up
    when a broker is slow with a transaction, and whoever runs one starts it again.
    """

    def __init__(
        self,
        folder: Path,
        settings: MirrorSettings,
        *,
        heap_mb: int = 256,
        version: str = "",
        class_options: Sequence[str] = from_archive("mirror"),
    ) -> None:
        """Prepare; ``class_options`` name the archive of classes, which an older ``version`` lacks."""
        self.settings = settings
        self._folder = folder
        self._rest_port, self._log_from, self._wanted = free_port(), 0, False
        self.restarts = 0
        """How often it died inside ``with``, and was started again."""
        self._keeper = Keeper(self, self._note_restart)
        self.service = Service(
            "MirrorMaker 2",
            [
                *(paths.java(), f"-Xmx{heap_mb}m"),
                *(*QUICK, *(() if version else class_options)),
                *(
                    "-cp",
                    paths.class_path(f"mirror-{version}" if version else "mirror"),
                    "org.apache.kafka.connect.mirror.MirrorMaker",
                ),
                folder / "mm2.properties",
            ],
            log_file=folder / "mirror.log",
            ready=lambda: is_listening(self._rest_port),
            ready_timeout_s=PATIENCE_S,
        )

    def __enter__(self) -> Self:
        self._keeper.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.__exit__()

    def start(self) -> None:
        """Start mirroring; the first records arrive some seconds after this returns."""
        self._configure()
        self.service.start()

    def launch(self) -> None:
        """Start without waiting."""
        self._configure()
        self.service.launch()

    def wait_ready(self) -> None:
        """Return once MirrorMaker's workers run."""
        self.service.wait_ready()

    @property
    def has_died(self) -> bool:
        """Whether it ended unasked, or one of its tasks gave up; the others then go on without it."""
        return self._wanted and self._is_dead()

    def _is_dead(self) -> bool:
        return not self.service.is_running or _GAVE_UP in self.service.log_text()[self._log_from :]

    def stop(self) -> None:
        """Stop mirroring in order."""
        self._wanted = False
        self.service.stop()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self.service.kill()

    def freeze(self) -> None:
        """Make the mirror fall behind; ``thaw`` lets it catch up."""
        self.service.freeze()

    def thaw(self) -> None:
        """Let a frozen mirror go on."""
        self.service.thaw()

    def _note_restart(self) -> None:
        self.restarts += 1
        log.warning("MirrorMaker 2 or a task of it has died: start it again")

    def _configure(self) -> None:
        self._wanted = True
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log_from = len(self.service.log_text())
        properties = self.settings.as_properties(self._rest_port)
        text = "".join(f"{key} = {value}\n" for key, value in properties.items())
        (self._folder / "mm2.properties").write_text(text)
