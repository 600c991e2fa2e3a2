"""Whether a store keeps what this package relies on: tried out, under a scratch prefix that is removed.

Several services that speak S3 take a conditional write and ignore the condition, or check first and write
then. Only racing writers tell them from one that may hold savepoints.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
)
from airflow_flinkstyle.storage.streams import LARGE_BYTES, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_flinkstyle.storage.base import ObjectStore

_RACERS = 8
_RACES = 12
_MANY = 1_010
"""More than a page of a listing holds (S3: 1,000)."""
_ODD_NAME = "a b+c=d%25~e"
"""Of characters that have to be written in another way in some places of a request, or must not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """One thing that every store must do."""

    name: str
    remedy: str
    """What to do about a store that does not."""
    check: Callable[[ObjectStore, str], None]
    """Tries it below a prefix; raises ``_BrokenError``, or an error of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractFinding:
    """A guarantee that the store does not give."""

    guarantee: str
    """Its name, as in ``GUARANTEES``."""
    problem: str
    """What was expected and what was found."""
    remedy: str


def check_store(
    store: ObjectStore, *, checking: Callable[[Guarantee], None] = lambda _: None
) -> tuple[ContractFinding, ...]:
    """Try every guarantee and return those that the store breaks; nothing is left behind.

    Args:
        store: Rooted where savepoints are to live; about 100 MB are written and deleted there.
        checking: Called before each guarantee is tried.

    Raises:
        StoreError: If the store cannot be reached, written to or cleaned up.
    """
    scratch = f"flinkstyle-check-{uuid.uuid4().hex}"
    store.write(f"{scratch}/reachable", b"")
    findings = []
    try:
        for number, guarantee in enumerate(GUARANTEES):
            checking(guarantee)
            problem = _problem(guarantee, store, f"{scratch}/{number}")
            if problem is not None:
                findings.append(
                    ContractFinding(guarantee=guarantee.name, problem=problem, remedy=guarantee.remedy)
                )
    finally:
        _in_parallel(store.delete, [info.key for info in store.list(f"{scratch}/")])
    return tuple(findings)


def _problem(guarantee: Guarantee, store: ObjectStore, prefix: str) -> str | None:
    try:
        guarantee.check(store, prefix)
    except _BrokenError as error:
        return str(error)
    except StoreError as error:
        return f"Expected {guarantee.name}, found an error: {error.problem}"
    return None


class _BrokenError(Exception):
    """The store did something else."""


def _expect(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise _BrokenError(f"{what}: expected {expected!r}, found {found!r}.")


def _in_parallel(call: Callable[[str], object], keys: Iterable[str]) -> None:
    with ThreadPoolExecutor(_RACERS) as pool:
        list(pool.map(call, keys))


def _raised(call: Callable[[], object]) -> str:
    """Return the name of the error that a call raises."""
    try:
        call()
    except FlinkstyleError as error:
        return type(error).__name__
    return "no error"


def _reads(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/object"
    version = store.write(key, b"0123456789")
    _expect("the whole object", b"0123456789", store.read(key))
    for start, length, content in ((3, 4, b"3456"), (8, None, b"89"), (8, 100, b"89"), (10, 5, b"")):
        _expect(f"{length or 'all'} bytes from {start}", content, store.read(key, start=start, length=length))
    info = store.head(key)
    _expect("size and version", (10, version), info and (info.size_bytes, info.version))


def _missing(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/none"
    _expect("head of a missing object", None, store.head(key))
    _expect("get of a missing object", None, store.get(key))
    _expect("read of a missing object", ObjectMissingError.__name__, _raised(lambda: store.read(key)))
    _expect("delete of a missing object", "no error", _raised(lambda: store.delete(key)))


def _overwrites(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/object"
    for number in range(5):
        store.write(key, str(number).encode())
        _expect("an object read after it was overwritten", str(number).encode(), store.read(key))
    others = [(f"{prefix}/one/a", b"a"), (f"{prefix}/one/b", b""), (key, b"last"), (f"{prefix}/two/a", b"a")]
    store.write_many(others)
    _expect("objects written together", others, [(name, store.read(name)) for name, _ in others])
    for name, _ in others[:2] + others[3:]:
        store.delete(name)
    store.delete(key)
    _expect("an object read after it was deleted", None, store.head(key))
    _expect("a listing after it was deleted", [], [info.key for info in store.list(f"{prefix}/")])


def _creates_once(store: ObjectStore, prefix: str) -> None:
    store.create(f"{prefix}/object", b"first")
    second = _raised(lambda: store.create(f"{prefix}/object", b"second"))
    _expect("a second create", ObjectExistsError.__name__, second)
    _expect("the content after a second create", b"first", store.read(f"{prefix}/object"))


def _one_creator_wins(store: ObjectStore, prefix: str) -> None:
    for number in range(_RACES):
        key = f"{prefix}/{number}"
        won = _race(partial(store.create, key))
        _expect(f"winners among {_RACERS} creators of one object", 1, len(won))
        _expect("the object's content", won[0], store.read(key))


def _replaces_unchanged(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/object"
    first = store.write(key, b"1")
    second = store.replace(key, b"2", expected=first)
    stale = _raised(lambda: store.replace(key, b"3", expected=first))
    _expect("a replace of an older version", ObjectChangedError.__name__, stale)
    _expect("the content after it", b"2", store.read(key))
    store.delete(key)
    gone = _raised(lambda: store.replace(key, b"4", expected=second))
    _expect("a replace of a deleted object", ObjectChangedError.__name__, gone)
    _expect("the object after it", None, store.head(key))


def _one_replacer_wins(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/object"
    for _ in range(_RACES):
        version = store.write(key, b"before")
        won = _race(partial(store.replace, key, expected=version))
        _expect(f"winners among {_RACERS} replacers of one version", 1, len(won))
        _expect("the object's content", won[0], store.read(key))


def _race(write: Callable[[bytes], object]) -> list[bytes]:
    """Let several threads write at once and return the contents of those that were let through."""
    barrier = threading.Barrier(_RACERS)

    def enter(number: int) -> bytes | None:
        content = f"racer {number}".encode()
        barrier.wait()
        try:
            write(content)
        except (ObjectExistsError, ObjectChangedError):
            return None
        return content

    with ThreadPoolExecutor(_RACERS) as pool:
        return [content for content in pool.map(enter, range(_RACERS)) if content is not None]


def _knows_unchanged(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}/object"
    version = store.write(key, b"1")
    _expect("get of the version that is known", None, store.get(key, unless=version))
    newer = store.write(key, b"2")
    found = store.get(key, unless=version)
    _expect("get of a newer version", (b"2", newer), found and (found.data, found.version))


def _lists_all(store: ObjectStore, prefix: str) -> None:
    names = [f"many/{number:05}" for number in range(_MANY)]
    names += [_ODD_NAME, "many.txt", "many-", "other/é/1.zip"]
    keys = [f"{prefix}/{name}" for name in names]
    _in_parallel(lambda key: store.write(key, b"1"), keys)
    _expect("all keys in order", sorted(keys), [info.key for info in store.list(f"{prefix}/")])
    few = [info.key for info in store.list(f"{prefix}/many/0000")]
    _expect("the keys with a prefix", [f"{prefix}/many/{number:05}" for number in range(10)], few)
    last = f"{prefix}/many/{_MANY - 2:05}"
    behind = [info.key for info in store.list(f"{prefix}/", after=last)]
    _expect("the keys behind one", [key for key in sorted(keys) if key > last], behind)


def _copies(store: ObjectStore, prefix: str) -> None:
    source, copy = f"{prefix}/{_ODD_NAME}", store.copier_from(store)
    if copy is None:  # nothing to try where this process is the one that copies
        return
    store.write(source, b"content")
    found = store.head(source)
    if found is None:
        raise _BrokenError("an object that was just written: expected to be there, found nothing.")
    copy(found, f"{prefix}/b")
    store.delete(source)
    _expect("a copy after its source was deleted", b"content", store.read(f"{prefix}/b"))
    store.write(source, b"changed")
    stale = _raised(lambda: copy(found, f"{prefix}/c"))
    _expect("a copy of an object that has changed since it was listed", ObjectChangedError.__name__, stale)


def _compares_uploads(store: ObjectStore, prefix: str) -> None:
    with tempfile.TemporaryDirectory(prefix="flinkstyle-") as folder:
        source = Path(folder) / "source"
        source.write_bytes(b"content")
        wrong = _raised(lambda: store.upload(f"{prefix}/object", source, sha256="0" * 64))
    _expect("an upload of other content than announced", ObjectChangedError.__name__, wrong)
    _expect("the object after it", None, store.head(f"{prefix}/object"))


def _carries_large_files(store: ObjectStore, prefix: str) -> None:
    size_bytes = LARGE_BYTES + 1
    block = hashlib.shake_256(prefix.encode()).digest(1 << 20)
    with tempfile.TemporaryDirectory(prefix="flinkstyle-") as folder:
        source = Path(folder) / "source"
        digest = hashlib.sha256()
        with source.open("wb") as file:
            for start in range(0, size_bytes, len(block)):
                piece = block[: size_bytes - start]
                file.write(piece)
                digest.update(piece)
        wrong = _raised(lambda: store.upload(f"{prefix}/wrong", source, sha256="0" * 64))
        _expect("an upload of other content than announced", ObjectChangedError.__name__, wrong)
        _expect("the object after it", None, store.head(f"{prefix}/wrong"))
        store.upload(f"{prefix}/large", source, sha256=digest.hexdigest())
    found = sha256_of(store, f"{prefix}/large")
    _expect("SHA-256 and size of a large upload", (digest.hexdigest(), size_bytes), found)


_CHOOSE: Final = "Keep savepoints in a store that does: AWS S3, MinIO, versitygw, or a local folder."
_CONDITIONAL: Final = (
    "Two drivers could both believe that they run the job, and write twice. Upgrade the service to a version "
    "with atomic conditional writes, or choose another: AWS S3, MinIO, versitygw, or a local folder."
)

GUARANTEES: Final = (
    Guarantee(name="reads whole and in ranges", remedy=_CHOOSE, check=_reads),
    Guarantee(name="missing objects named as such", remedy=_CHOOSE, check=_missing),
    Guarantee(name="reads see the newest write", remedy=_CHOOSE, check=_overwrites),
    Guarantee(name="create of what is not there", remedy=_CONDITIONAL, check=_creates_once),
    Guarantee(name="one winner of racing creates", remedy=_CONDITIONAL, check=_one_creator_wins),
    Guarantee(name="replace of what is unchanged", remedy=_CONDITIONAL, check=_replaces_unchanged),
    Guarantee(name="one winner of racing replaces", remedy=_CONDITIONAL, check=_one_replacer_wins),
    Guarantee(name="get of what has changed only", remedy=_CHOOSE, check=_knows_unchanged),
    Guarantee(name="listings whole and in order", remedy=_CHOOSE, check=_lists_all),
    Guarantee(name="copies inside the store", remedy=_CHOOSE, check=_copies),
    Guarantee(name="uploads compared with their digest", remedy=_CHOOSE, check=_compares_uploads),
    Guarantee(name="large files in parts", remedy=_CHOOSE, check=_carries_large_files),
)
"""All that the package relies on, in the order in which it is tried."""
