"""How a driver gets this package: installed beside its Python, or as one zip of Python files."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import airflow_flinkstyle
from airflow_flinkstyle.errors import BadInputError

ROOMS: Final = (
    "agent", "sinks", "state", "rewrite", "savepoint", "kafka", "checkpoint", "protocol", "storage",
    "spark_versions.py", "python_versions.py", "patience.py", "offsets.py", "types.py", "clock.py",
    "typed_json.py", "errors.py", "grouping.py", "wording.py", "__init__.py",
)  # fmt: skip
"""What runs in a driver or an executor: the agent, and the layers below it."""
_EPOCH: Final = (2020, 1, 1, 0, 0, 0)
"""Instead of the files' times, so that each version gives one zip."""


INSTALLED: Final = "installed"
PY_FILES: Final = "py-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAgent:
    """How a driver on a cluster finds this package."""

    way: str = INSTALLED
    """``installed`` beside its Python, or ``py-files``."""
    path: str | None = None
    """``installed``: the launcher's path where the driver runs; None for this one's. ``py-files``: the zip of
    ``flinkstyle agent pack`` where Spark can fetch it; None where spark-submit uploads one (YARN)."""

    def __post_init__(self) -> None:
        """Refuse other ways by name."""
        if self.way not in (INSTALLED, PY_FILES):
            raise BadInputError(
                f"An agent {INSTALLED!r} or {PY_FILES!r} was expected, found {self.way!r}.",
                state_after="Nothing was started.",
                remedy="Correct 'agent' in the Spark connection's extra.",
            )

    @property
    def launcher(self) -> str:
        """What Spark runs, as a path where the driver runs."""
        if self.path is None:
            return launcher_path()
        return self.path.removesuffix(".zip") + ".py" if self.way == PY_FILES else self.path

    def require_place(self, cluster: str, copy: str) -> None:
        """Refuse a zip whose place is not named, on a cluster to which nothing is uploaded."""
        if self.way == PY_FILES and not self.path:
            raise BadInputError(
                f"The place of the agent's zip was expected with agent 'py-files' on {cluster}, found none: "
                "nothing of this machine is uploaded there.",
                state_after="Nothing was started or changed.",
                remedy=f"Run `flinkstyle agent pack FOLDER`, {copy}, and name the zip as 'agent-path' in the "
                "Spark connection's extra.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The options with which Spark runs a driver somewhere."""

    deploy_mode: str = "client"
    """Of the Spark connection: ``client`` or ``cluster``."""
    submit_mode: str = "client"
    """The deploy mode that ``spark-submit`` gets."""
    uploads: bool = False
    """Whether files of this machine are uploaded: then the launcher is this package's own."""
    in_image: bool = False
    """Whether paths without a scheme are in the image, and get the scheme ``local``."""
    redacts: tuple[str, ...] = ()
    """Settings that Spark's plans must not show, as regular expressions."""

    def launcher(self, agent: DriverAgent) -> str:
        """Return what Spark runs."""
        return self._path(launcher_path() if self.uploads else agent.launcher)

    def py_files(self, agent: DriverAgent) -> tuple[str, ...]:
        """Return what Spark brings to the driver's Python path."""
        return (self._path(agent.path),) if agent.way == PY_FILES and agent.path else ()

    def _path(self, path: str) -> str:
        return path if urlsplit(path).scheme or not self.in_image else f"local://{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAgent:
    """The two files; they belong side by side."""

    archive: Path
    """For ``--py-files``."""
    launcher: Path
    """The program that Spark runs."""


def launcher_path() -> str:
    """Return the launcher's file, without importing the agent (it needs PySpark)."""
    return str(Path(airflow_flinkstyle.__file__).parent / "agent" / "launcher.py")


def require_agent() -> None:
    """Refuse an installation without the parts that drivers run, before anything is claimed.

    Raises:
        BadInputError: Naming what is missing, as in a wheel that was built from a part of the package.
    """
    root = Path(airflow_flinkstyle.__file__).parent
    needed = (*ROOMS, "agent/launcher.py", "agent/core/runtime.py")
    missing = [room for room in needed if not _files(root / room)]
    if missing:
        raise BadInputError(
            f"The agent was expected in {root}, found no {', '.join(missing)}.",
            state_after="Nothing was started.",
            remedy="Install a whole wheel of airflow-flinkstyle here (`make dist` builds one).",
        )


def pack_agent(folder: Path) -> PackedAgent:
    """Write the agent of this version into a folder.

    Raises:
        BadInputError: If a part of it is missing.
        OSError: If it cannot be written.
    """
    require_agent()
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"flinkstyle-agent-{airflow_flinkstyle.__version__}.zip"
    root = Path(airflow_flinkstyle.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in (file for room in ROOMS for file in _files(root / room)):
            name = (Path(root.name) / file.relative_to(root)).as_posix()
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    launcher = archive.with_suffix(".py")
    shutil.copyfile(launcher_path(), launcher)
    return PackedAgent(archive=archive, launcher=launcher)


def _files(place: Path) -> list[Path]:
    """Return a room's Python files, or the one file that is there; none if neither is."""
    return sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.is_file() else []
