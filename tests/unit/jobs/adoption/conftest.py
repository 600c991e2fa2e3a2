"""A job of plain Spark that has run three batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.jobs.adoption.plain import PlainSpark

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World


@pytest.fixture
def plain(world: World) -> PlainSpark:
    made = PlainSpark(world, world.folder / "ck")
    made.run(batches=3)
    return made
