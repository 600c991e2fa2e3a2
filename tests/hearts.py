"""Heartbeats of drivers that only seem to run, for readers who believe a lease once they see it renewed."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.types import Generation

_hearts: list[tuple[threading.Thread, threading.Event]] = []


def begin(board: JobBoard, generation: Generation, heartbeat: Heartbeat) -> None:
    """Write a heartbeat, and again every tenth of a second until the test has ended."""
    ended = threading.Event()
    version = board.beat(generation, heartbeat, seen=None)
    thread = threading.Thread(target=_beat, args=(board, generation, heartbeat, version, ended), daemon=True)
    _hearts.append((thread, ended))
    thread.start()


def end_all() -> None:
    """Let all of them stop."""
    while _hearts:
        thread, ended = _hearts.pop()
        ended.set()
        thread.join(10)


def _beat(
    board: JobBoard, generation: Generation, heartbeat: Heartbeat, version: str, ended: threading.Event
) -> None:
    while not ended.wait(0.1):
        heartbeat = replace(heartbeat, beat=heartbeat.beat + 1)
        version = board.beat(generation, heartbeat, seen=version)
