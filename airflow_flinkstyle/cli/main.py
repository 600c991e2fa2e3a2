"""The console script; names what to install where the extra ``cli`` is missing."""

from __future__ import annotations

import sys

_NEEDED = ("rich", "typer")


def main() -> None:
    """Run ``flinkstyle``."""
    try:
        from airflow_flinkstyle.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.exit(
            f"The command flinkstyle needs {' and '.join(_NEEDED)}, found no {missing}. "
            "Nothing was done. Install them with: pip install 'airflow-flinkstyle[cli]'"
        )
    app(prog_name="flinkstyle")
