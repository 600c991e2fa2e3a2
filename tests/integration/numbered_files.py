"""Files of numbered rows for Spark's file source."""

from __future__ import annotations

import json
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS_PER_FILE = 10


class NumberedFiles:
    """A source of files; each appears whole."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "in"
        self.source.mkdir(parents=True)
        self.written = 0

    def feed(self, files: int) -> None:
        for number in range(self.written, self.written + files):
            rows = [{"id": number * ROWS_PER_FILE + row} for row in range(ROWS_PER_FILE)]
            draft = self.source.parent / "draft"
            draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
            draft.rename(self.source / f"{number:04}.json")
        self.written += files

    @contextmanager
    def fed(self, every_s: float) -> Iterator[None]:
        """Write a file now and then for as long as the block runs."""
        ended = Event()

        def feed() -> None:
            while not ended.wait(every_s):
                self.feed(1)

        feeder = Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            ended.set()
            feeder.join()
