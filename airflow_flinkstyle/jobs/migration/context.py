"""What every phase of a migration is given beside what a cutover has: both clusters, and the switch."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.jobs.cutover.context import CutoverContext
from airflow_flinkstyle.jobs.errors import HOLD_LOST
from airflow_flinkstyle.jobs.migration.producers import HoldLease, TokenCounter, leased

if TYPE_CHECKING:
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.jobs.migration.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch, Released
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


class ProducerHold:
    """Holds producers for one attempt.

    This process counts the lease from when a renewal was begun, producers count it from when they read it:
    none of them writes while this process counts. A renewal that is late renews nothing.
    """

    def __init__(
        self, switch: ProducerSwitch, *, token: int, lease_s: float, clock: Clock = LEASE_CLOCK
    ) -> None:
        """Describe the hold of an attempt; nothing is held yet."""
        self._switch, self._token, self._lease_s, self._clock = switch, token, lease_s, clock
        self._lock = threading.Lock()
        self._lease: HoldLease | None = None
        self._until_s = 0.0
        self._for_takeover = False

    def begin(self, generation: Generation | None) -> None:
        """Hold them; if the lease ends while ``generation`` runs the job, they write to the new cluster."""
        with self._lock:
            self._lease = HoldLease(lease_s=self._lease_s, renewal=1, generation=generation)
            self._apply(self._lease)

    def renew(self) -> float:
        """Renew the lease if anything is held.

        Returns:
            For how many seconds producers are certain to be held, if a driver may take over; else 0.

        Raises:
            JobError: ``HOLD_LOST`` if the lease had ended before.
            StaleTokenError: If a newer attempt has held or released them.
        """
        with self._lock:
            if self._lease is None:
                return 0.0
            self._require()
            before_s = self._until_s
            self._lease = self._lease.renewed()
            self._apply(self._lease)
            if self._clock.now_s >= before_s:  # it came late: they may have written in between
                self._until_s = before_s
            self._require()
            return min(self._lease_s, self._until_s - self._clock.now_s) if self._for_takeover else 0.0

    def let_take_over(self) -> None:
        """Let the driver that has its takeover order take over, for as long as producers are held."""
        self._for_takeover = True

    def require(self) -> None:
        """Require that they are held still.

        Raises:
            JobError: ``HOLD_LOST`` if they may write by now.
        """
        with self._lock:
            self._require()

    def release(self, position: Released) -> None:
        """Release them, and stop renewing."""
        with self._lock:
            self._lease, self._for_takeover = None, False
            self._switch.apply(position, self._token)

    def _apply(self, lease: HoldLease) -> None:
        begun_s, hold = self._clock.now_s, leased(self._switch)
        if hold is not None:
            hold(lease, self._token)
        elif lease.renewal == 1:
            self._switch.apply("hold", self._token)
        self._until_s = begun_s + self._lease_s if hold is not None else inf

    def _require(self) -> None:
        if self._lease is None or self._clock.now_s >= self._until_s:
            raise HOLD_LOST.with_text(
                f"Producers were expected to be held, found that the hold was not renewed for "
                f"{self._lease_s:g} s: they may have written since.",
                state_after="The new driver has not taken the job over.",
                remedy="Look for what kept this task from the store for so long; then migrate again.",
            )


@dataclass(kw_only=True)
class MigrationContext(CutoverContext):
    """One migration of one job, as every attempt and every task of it knows it.

    ``spec`` is the job as it runs on the new cluster: usually the same, with overrides.
    """

    switch: ProducerSwitch
    kafka: KafkaSide
    group: str | None = None
    """Consumer group whose offsets on the new cluster are set, for those who watch its lag."""
    held: ProducerHold | None = None
    """This attempt's hold of the producers; None before it has begun."""

    def begin(self) -> None:
        """Take charge; every older attempt finds its token replaced."""
        tokens = TokenCounter(self.client.view.board.store, self.client.view.job)
        attempt = self.journal.begin(tokens.next)
        self.held = ProducerHold(self.switch, token=attempt.token, lease_s=self.settings.hold_lease_s)
        log.info("Attempt %d of migration %s", attempt.attempt, self.journal.migration_id)

    @property
    def hold(self) -> ProducerHold:
        """The hold of the attempt that has begun."""
        if self.held is None:
            raise RuntimeError("no attempt has begun")
        return self.held

    def let_take_over(self) -> None:
        """Record, now and with each beat, for how long producers are held: the driver waits for that."""
        self.hold.let_take_over()
        if self.work is not None:
            self.work.beat()

    def renew_held(self) -> float:
        """Renew the hold."""
        return self.hold.renew()

    @property
    def sources(self) -> dict[str, list[str]]:
        """``query/source`` -> topics that the old generation reads on the old cluster, as journalled."""
        recorded = (self.journal.result("standby") or {}).get("sources")
        return dict(recorded) if recorded else sources_read(self, self.generation("old"))

    @property
    def topics(self) -> list[str]:
        """The topics of all sources, each once."""
        return sorted({topic for topics in self.sources.values() for topic in topics})


def sources_read(context: MigrationContext, old: Generation) -> dict[str, list[str]]:
    """Return ``query/source`` -> topics on the old cluster; a restarted driver reports few, or none."""
    slot, old_id = context.client.view.board.heartbeat(old), context.kafka.old_cluster_id
    return {
        f"{query}/{name}": sorted(source.topic_ids)
        for query, status in (slot.value.queries if slot else {}).items()
        for name, source in status.sources.items()
        if source.cluster_id == old_id
    }
