from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tools import common, jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose jars come from a stand-in repository: files beside their checksums."""
    monkeypatch.setattr(common, "HOME", tmp_path)
    monkeypatch.setattr(jars, "HOME", tmp_path)

    def retrieve(
        _java: Path, coordinates: list[jars.Coordinate], folder: Path, *_: object, **__: object
    ) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        for coordinate in coordinates:
            if coordinate.artifact != "absent":
                (folder / coordinate.retrieved_name).write_text(served(coordinate))
        return 0

    monkeypatch.setattr(jars, "retrieve", retrieve)
    return tmp_path


def ensure(checkout: Path) -> None:
    jars.ensure(checkout, checkout / "jars.lock", checkout / "jars")


def served(coordinate: jars.Coordinate) -> str:
    return f"the bytes of {coordinate}"


def line(jar_set: str, coordinate: str, content: str | None = None) -> str:
    content = content or served(jars.Coordinate.parse(coordinate))
    return f"{jar_set} {coordinate} {hashlib.sha256(content.encode()).hexdigest()}\n"


def test_identical_jars_of_two_sets_are_one_file(checkout: Path):
    (checkout / "jars.lock").write_text(line("a", "g:x:1") + line("b", "g:x:1") + line("b", "g:y:2:linux"))
    ensure(checkout)
    assert (checkout / "jars/a/x-1.jar").stat().st_ino == (checkout / "jars/b/x-1.jar").stat().st_ino
    assert sorted(path.name for path in (checkout / "jars").iterdir()) == ["a", "b"]
    assert (checkout / "jars/b/y-2-linux.jar").exists()


def test_jar_with_another_checksum_names_file_expected_found_and_remedy(checkout: Path):
    (checkout / "jars.lock").write_text(line("a", "g:x:1", "what was locked"))
    with pytest.raises(
        SystemExit, match=r"g:x:1 was expected to have SHA-256 \w{64}, found \w{64}.*make lock"
    ):
        ensure(checkout)
    assert not list((checkout / "jars").glob("a/*"))


def test_jars_that_came_are_kept_when_one_is_missing(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jars, "LOGS", jars.ROOT / "logs")
    (checkout / "jars.lock").write_text(line("a", "g:x:1") + line("a", "g:absent:1"))
    with pytest.raises(SystemExit, match="2 jars were to be fetched, Ivy brought 1"):
        ensure(checkout)
    assert [path.read_text() for path in checkout.glob("jars/incoming/*")] == ["the bytes of g:x:1"]


def test_second_run_fetches_only_what_the_lock_file_gained(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    (checkout / "jars.lock").write_text(line("a", "g:x:1") + line("gone", "g:z:1"))
    ensure(checkout)
    asked: list[jars.Coordinate] = []
    fetch = jars.retrieve

    def remembering(java: Path, coordinates: list[jars.Coordinate], *rest: object, **named: object) -> int:
        asked.extend(coordinates)
        return fetch(java, coordinates, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(jars, "retrieve", remembering)
    (checkout / "jars.lock").write_text(line("a", "g:x:1") + line("b", "g:y:1"))
    ensure(checkout)
    assert [str(coordinate) for coordinate in asked] == ["g:y:1"]
    assert not (checkout / "jars/gone").exists()


def test_lock_file_names_every_jar_once_per_set_with_a_whole_checksum():
    locked = jars.read_lock()
    assert len({(jar.jar_set, jar.coordinate) for jar in locked}) == len(locked) > 200
    assert {len(jar.sha256) for jar in locked} == {64}
    assert {jar.jar_set for jar in locked} == {
        "delta",
        "hdfs",
        "kafka",
        "mirror",
        "s3a",
        "s3proxy",
        "spark-kafka",
        *(f"spark-kafka-{minor}" for minor in common.SPARKS),
        "yarn",
    }
