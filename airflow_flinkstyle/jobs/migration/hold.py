"""The hold of the producers as one attempt knows it: a lease that it renews, and that ends by itself."""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.jobs.errors import HoldLostError
from airflow_flinkstyle.jobs.migration.producers import HoldLease, leased

if TYPE_CHECKING:
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch, Released
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


class ProducerHold:
    """Holds producers for one attempt.

    A renewal counts from when it was begun, by this process's own clock, and producers count from when they
    see it: so until then none of them writes. One that comes after that renews nothing.
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
        """Hold them; if the lease ends once ``generation`` runs the job they write to the new cluster."""
        with self._lock:
            self._lease = HoldLease(lease_s=self._lease_s, renewal=1, generation=generation)
            self._apply(self._lease)

    def renew(self) -> float:
        """Renew the lease if anything is held.

        Returns:
            For how many seconds producers are certain to be held, if a driver may take over; else 0.

        Raises:
            HoldLostError: If the lease had ended before.
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
        """Let the driver that was told to take over do so, for as long as producers are held."""
        self._for_takeover = True

    def require(self) -> None:
        """Require that they are held still.

        Raises:
            HoldLostError: If they may write by now.
        """
        with self._lock:
            self._require()

    def release(self, position: Released) -> None:
        """Release them, and renew nothing any more."""
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
            raise HoldLostError(
                f"Producers were expected to be held, found that it was not renewed for {self._lease_s:g} s: "
                "they may have written since.",
                state_after="The new driver has not taken the job over.",
                remedy="Look for what kept this task from the store for so long; then migrate again.",
            )
