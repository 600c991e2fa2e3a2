"""Write the reference of the command line, as its own help says it, into docs/cli.md.

Typer writes its help as Markdown; here it becomes one paragraph and a list for each command, and what many
commands have is said once.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

from tools.common import ROOT, say

DOCUMENT = ROOT / "docs" / "cli.md"
_BEGIN = "<!-- reference: written by `python -m tools.cli_docs`, do not edit -->"
_SHARED = 2
"""An option that so many commands have, with the same words, is explained once."""
_COMMAND = re.compile(r"^#{2,4} `(flinkstyle [^`]+)`$", re.MULTILINE)
_OPTION = re.compile(r"^\* `(-[^`<]*?)( <[^`]+>)?`: (.*?)(?:  \[(.*)\])?$", re.MULTILINE)
_KINDS = {"str": "TEXT", "list[str]": "TEXT", "path": "PATH", "list[Path]": "PATH"}
"""As Typer calls a value -> as the reference does; choices stand for themselves, all else is a number."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command."""

    name: str
    """As it is typed, with its value: ``-j, --job=TEXT``."""
    words: str
    extra: str
    """Its default, or that it is required; empty if neither."""

    @property
    def shared(self) -> tuple[str, str]:
        """What is the same wherever several commands have it."""
        return self.name, self.words


def main() -> int:
    """Write it."""
    DOCUMENT.write_text(render(), encoding="utf-8")
    say(f"Wrote {DOCUMENT.relative_to(ROOT)}")
    return 0


def render() -> str:
    """Return the document with the reference as it is now; everything before the mark stays."""
    command = [sys.executable, "-m", "typer", "airflow_flinkstyle.cli.app", "utils", "docs"]
    help_text = subprocess.run(  # noqa: S603 - our own module
        [*command, "--name", "flinkstyle"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    head = DOCUMENT.read_text(encoding="utf-8").partition(_BEGIN)[0]
    return f"{head}{_BEGIN}\n{reference(html.unescape(help_text))}\n"


def reference(help_text: str) -> str:
    """Return the options that many commands have, then every command with its own."""
    parts = _COMMAND.split(help_text)[1:]
    texts = {
        name: text for name, text in zip(parts[::2], parts[1::2], strict=True) if "**Commands**" not in text
    }
    options = {name: _options(text) for name, text in texts.items()}
    counted = Counter(option.shared for of in options.values() for option in of)
    common = {name: (name, words) for (name, words), _ in reversed(counted.most_common())}
    shared = {option for option in common.values() if counted[option] >= _SHARED}
    lines = ["Options that mean the same in every command, unless it says otherwise:\n"]
    lines += [f"- `{name}`: {words}" for name, words in sorted(shared)]
    for name, text in texts.items():
        lines.append(f"\n### `{name}{_arguments(text)}`\n\n{text.partition('**Usage**')[0].strip()}\n")
        lines += [
            f"- `{one.name}`{one.extra}: {one.words}" for one in options[name] if one.shared not in shared
        ]
        also = [
            f"`{one.name.partition('=')[0].split(', ')[-1]}`{one.extra}"
            for one in options[name]
            if one.shared in shared
        ]
        lines += [f"- {', '.join(also)}"] if also else []
    return "\n".join(lines)


def _arguments(text: str) -> str:
    usage = re.search(r"^\$ flinkstyle .*?\[OPTIONS\](.*)$", text, re.MULTILINE)
    return usage[1].replace("{", "").replace("}", "").upper() if usage else ""


def _options(text: str) -> list[Option]:
    found = []
    for name, value, words, notes in _OPTION.findall(text):
        if name == "--help":
            continue
        facts = dict(note.partition(": ")[::2] for note in notes.split("; ")) if notes else {}
        variable = f" (`{facts['env var']}`)" if "env var" in facts else ""
        default = f" ({facts['default'].strip('()')})" if "default" in facts else ""
        found.append(
            Option(
                name=f"{name}{_kind(value.strip(' <>'))}",
                words=f"{words.rstrip()}{variable}",
                extra=" (required)" if "required" in facts and not variable else default,
            )
        )
    return found


def _kind(value: str) -> str:
    if not value:
        return ""
    return f"={value if '|' in value else _KINDS.get(value, 'N')}"


if __name__ == "__main__":
    sys.exit(main())
