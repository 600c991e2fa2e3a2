"""Write the reference of the command line, as its own help says it, into docs/cli.md.

Typer writes its help as Markdown; here it becomes one paragraph and a list for each command, and what many
commands have is said once.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.common import ROOT, say
from tools.said_once import said_often

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DOCUMENT = ROOT / "docs" / "cli.md"
_BEGIN = "<!-- reference: written by `python -m tools.cli_docs`, do not edit -->"
_ALWAYS = ("--root", "--job", "--json")
"""Only a command that lacks one of these says so."""
_MORE = "`flinkstyle COMMAND --help` says more of each.\n"
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
    def short(self) -> str:
        """Its long name alone: ``--job``."""
        return self.name.partition("=")[0].split(", ")[-1]

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
    return laid_out(
        {
            f"{name}{_arguments(text)}": (_first_paragraph(text), _options(text))
            for name, text in texts.items()
        }
    )


def laid_out(commands: Mapping[str, tuple[str, Sequence[Option]]]) -> str:
    """Return the reference of the commands: each as it is typed -> its first paragraph and its options."""
    usual, shared = said_often(option.shared for _, of in commands.values() for option in of)
    defaults = _defaults(commands)
    lines = [
        f"Every command takes {', '.join(f'`{name}`' for name in _ALWAYS)}, unless it says *without*.",
        _MORE,
    ]
    for option in sorted(shared):
        rooms = "" if option[1] == usual[option[0]] else f" of {', '.join(_rooms(commands, option))}"
        lines.append(f"- `{option[0]}`{rooms}{defaults.get(option, '')}: {option[1]}")
    for name, (words, of) in commands.items():
        lines.append(f"\n### `{name.removeprefix('flinkstyle ')}`\n\n{words}\n")
        lines += [f"- `{one.name}`{one.extra}: {one.words}" for one in of if one.shared not in shared]
        also = [one for one in of if one.shared in shared and one.short not in _ALWAYS]
        names = [f"`{one.short}`{'' if one.shared in defaults else one.extra}" for one in also]
        without = [f"`{always}`" for always in _ALWAYS if always not in [one.short for one in of]]
        names += [f"without {', '.join(without)}"] if without else []
        lines += [f"- {', '.join(names)}"] if names else []
    return "\n".join(lines)


def _defaults(commands: Mapping[str, tuple[str, Sequence[Option]]]) -> dict[tuple[str, str], str]:
    """Return what is said of an option's default, where it is the same in every command that has it."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in (option for _, of in commands.values() for option in of):
        found.setdefault(one.shared, set()).add(one.extra)
    return {shared: extras.pop() for shared, extras in found.items() if len(extras) == 1}


def _rooms(commands: Mapping[str, tuple[str, Sequence[Option]]], option: tuple[str, str]) -> list[str]:
    """Return the groups of the commands that have an option, each once: ``transactions``, ``topic``."""
    having = [name for name, (_, of) in commands.items() if option in [one.shared for one in of]]
    return [f"`{room}`" for room in dict.fromkeys(name.split()[1] for name in having)]


def _first_paragraph(text: str) -> str:
    return text.partition("**Usage**")[0].strip().partition("\n\n")[0]


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
