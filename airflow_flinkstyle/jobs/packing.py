"""``flinkstyle agent pack``: what a driver needs of this package, as one zip of Python files."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import airflow_flinkstyle
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.target import launcher_path

ROOMS: Final = (
    "agent", "sinks", "state", "rewrite", "savepoint", "kafka", "checkpoint", "protocol", "storage",
    "spark_versions.py", "python_versions.py", "patience.py", "offsets.py", "types.py", "clock.py",
    "typed_json.py", "errors.py", "wording.py", "__init__.py",
)  # fmt: skip
"""What runs in a driver or an executor: the agent, and the layers below it."""
_EPOCH: Final = (2020, 1, 1, 0, 0, 0)
"""In place of the files' times, so that one version gives one zip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAgent:
    """The two files; they belong side by side."""

    archive: Path
    """For ``--py-files``."""
    launcher: Path
    """What Spark is given to run."""


def require_agent() -> None:
    """Refuse an installation of this package without what drivers run, before anything is claimed.

    Raises:
        BadInputError: Naming what is missing: a wheel that somebody built from a part of the package.
    """
    root = Path(airflow_flinkstyle.__file__).parent
    missing = [room for room in (*ROOMS, "agent/launcher.py", "agent/runtime.py") if not _files(root / room)]
    if missing:
        raise BadInputError(
            f"The agent was expected in {root}, found no {', '.join(missing)}.",
            state_after="Nothing was started.",
            remedy="Install a whole wheel of airflow-flinkstyle here (`make dist` builds one).",
        )


def pack_agent(folder: Path) -> PackedAgent:
    """Write the agent of this version into a folder.

    Raises:
        BadInputError: If it is not here as a whole.
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
