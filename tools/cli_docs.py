"""Write the reference of the command line, as its own help says it, into docs/cli.md."""

from __future__ import annotations

import html
import subprocess
import sys

from tools.common import ROOT, say

DOCUMENT = ROOT / "docs" / "cli.md"
_BEGIN = "<!-- reference: written by `python -m tools.cli_docs`, do not edit -->"


def render() -> str:
    """Return the document with the reference as it is now; everything before the mark stays."""
    command = [sys.executable, "-m", "typer", "airflow_flinkstyle.cli.app", "utils", "docs"]
    help_text = subprocess.run(  # noqa: S603 - our own module
        [*command, "--name", "flinkstyle"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    head = DOCUMENT.read_text(encoding="utf-8").partition(_BEGIN)[0]
    body = help_text.partition("\n")[2].replace("\n#", "\n##")  # its own title goes, all others down a level
    return f"{head}{_BEGIN}\n{html.unescape(body).rstrip()}\n"


def main() -> int:
    """Write it."""
    DOCUMENT.write_text(render(), encoding="utf-8")
    say(f"Wrote {DOCUMENT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
