"""``flinkstyle agent pack``: what a driver needs of this package, as one zip of Python files."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import airflow_flinkstyle
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


def pack_agent(folder: Path) -> PackedAgent:
    """Write the agent of this version into a folder.

    Raises:
        OSError: If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"flinkstyle-agent-{airflow_flinkstyle.__version__}.zip"
    root = Path(airflow_flinkstyle.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for room in ROOMS:
            place = root / room
            for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                name = (Path(root.name) / file.relative_to(root)).as_posix()
                packed.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    launcher = archive.with_suffix(".py")
    shutil.copyfile(launcher_path(), launcher)
    return PackedAgent(archive=archive, launcher=launcher)
