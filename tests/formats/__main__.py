"""Write the golden files of this version's formats: `python -m tests.formats` in Airflow's environment.

One folder for each version of the package that changed a format. Until a version is tagged, its folder is
written anew whenever a format changes. From then on its files stay as they are: a change of a format adds a
folder, with a reader for what the older ones hold, and `NEWEST` names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
NEWEST: Final = FOLDER / "0.2"


def write() -> None:
    """Write all files of the newest folder, and remove those of formats that there are not."""
    from tests.formats.documents import documents

    found = documents()
    NEWEST.mkdir(exist_ok=True)
    for path in NEWEST.iterdir():
        if path.name not in found:
            path.unlink()
    for name, one in found.items():
        (NEWEST / name).write_bytes(one.write())


if __name__ == "__main__":
    write()
