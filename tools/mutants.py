"""`make mutants`: change what must not be wrong, a place at a time, and see that a unit test fails.

What is changed, and what may survive with a reason each, stands in tests/mutants.toml; the outcome is
written to docs/mutants.md. A mutant that survives without a reason, or is touched by no test, fails the
run, and so does a reason that no mutant needs any more. ``--again`` runs what survived the last run.

Not counted are mutants of an error's words or a log line; one whose tests take 5 s and thrice as long as
without it counts as killed. mutmut does not change decorated functions, a module's constants, the fixed
parts of f-strings, calls of ``len`` and ``isinstance``, annotations, and defaults that are calls.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import difflib
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tools.common import HOME, LOCKS, ROOT, VENV_MUTANTS, fail, remove, say
from tools.setup import install_venv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PACKAGE: Final = "airflow_flinkstyle"
LIST: Final = ROOT / "tests" / "mutants.toml"
DOCUMENT: Final = ROOT / "docs" / "mutants.md"
FOLDER: Final = HOME / "mutants"
SURVIVED, KILLED, UNTESTED = 0, 1, 33
STATUS: Final = {SURVIVED: "survived", KILLED: "killed", UNTESTED: "untested"}
"""By the exit code of the tests; mutants that did not end are killed, too."""
_BEGIN = "<!-- outcome: written by `make mutants`, do not edit -->"
_HEAD = "Mutants of each module; those that survived have a reason:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module to mutate."""

    name: str
    """Its path in the package, without ``.py``."""
    tests: tuple[str, ...]
    """Files and folders in tests/unit that must find its mutants."""
    integration: tuple[str, ...] = ()
    """Functions that only integration tests run, since they need a broker or Spark; they are not mutated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed place of a module, and what the tests said."""

    key: str
    """mutmut's name of it."""
    function: str
    change: str
    """The lines that differ, as a diff without context; the code is written as ``ast.unparse`` writes it."""
    words: bool
    """Only the words of an error or of a log line differ, so nobody has to find it."""
    code: int | None
    """How its tests ended; None if they were not run."""

    @property
    def status(self) -> str:
        """Whether it survived."""
        return (
            STATUS.get(self.code, f"unclear (exit code {self.code})") if self.code is not None else "not run"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a mutant may survive."""

    module: str
    function: str
    change: str
    reason: str


def main() -> int:
    """Run the modules that were asked for; the exit code is 0 if every survivor has a reason."""
    modules, reasons = read_list(LIST.read_text())
    names = [module.name for module in modules]
    parser = argparse.ArgumentParser(prog="tools.mutants")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--again", action="store_true", help="try only what survived the last run")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.modules) - set(names)):
        fail(
            f"mutants: expected modules of {LIST.name}, found {unknown}.",
            "Nothing was run.",
            "Add them there.",
        )
    install_venv(VENV_MUTANTS, LOCKS / "mutants.txt")
    wanted = [module for module in modules if not asked.modules or module.name in asked.modules]
    problems: list[str] = []
    outcomes = run(wanted, again=asked.again)
    document = DOCUMENT.read_text()
    for module, mutants in zip(wanted, outcomes, strict=True):
        given = [one for one in reasons if one.module == module.name]
        problems += problems_of(mutants, given)
        document = with_row(document, row(module, mutants, given, _today(), _version()))
    if not asked.again:  # what was killed before may live with the tests as they are now
        DOCUMENT.write_text(document)
    say("\n".join([*problems, f"mutants: {len(problems)} problems"]))
    return 1 if problems else 0


def read_list(text: str) -> tuple[list[Module], list[Reason]]:
    """Read what is mutated, and what may survive."""
    read = tomllib.loads(text)
    modules = [
        Module(name=one["name"], tests=tuple(one["tests"]), integration=tuple(one.get("integration", ())))
        for one in read["module"]
    ]
    reasons = [
        Reason(
            module=one["in"].partition("::")[0],
            function=one["in"].partition("::")[2],
            change=one["change"].strip(),
            reason=one["reason"],
        )
        for one in read.get("survivor", ())
    ]
    return modules, reasons


def run(modules: Sequence[Module], *, again: bool) -> list[list[Mutant]]:
    """Have the modules changed, in a folder of its own, and the tests run on each mutant."""
    if not again:
        remove(FOLDER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / "log"
    say(f"mutants: {len(modules)} modules; {log.relative_to(ROOT)} shows how far it is")
    names = [module.name for module in modules]
    command = [VENV_MUTANTS / "bin" / "python", "-m", "tools.mutant_runner", *names, *["--again"] * again]
    with log.open("w") as out:
        code = subprocess.run(  # noqa: S603 - our own environment
            [str(part) for part in command], cwd=ROOT, stdout=out, stderr=out, env=_environment()
        ).returncode
    if code != 0:
        say(log.read_text(errors="replace")[-3000:])
        fail(
            f"mutants: the tests ended with exit code {code}, 0 was expected.",
            "No outcome was written.",
            f"See {log}.",
        )
    return [read_mutants(module) for module in modules]


def chosen(names: Sequence[str]) -> list[Module]:
    """Return the modules of these names."""
    return [module for module in read_list(LIST.read_text())[0] if module.name in names]


def result_of(module: Module, suffix: str = ".py") -> Path:
    """Return where a module's mutants are, or by ``.json`` how the tests of each ended."""
    return FOLDER / PACKAGE / f"{module.name}{suffix}"


def _environment() -> dict[str, str]:
    # Two mutants that are compared must not differ by the order of sets.
    return {**os.environ, "PYTHONHASHSEED": "0"}


def read_mutants(module: Module) -> list[Mutant]:
    """Read what mutmut has made of a module, and what became of it."""
    functions = dict(_functions(ast.parse(result_of(module).read_text())))
    mutants = []
    for key, code in json.loads(result_of(module, ".json").read_text()).items():
        mangled = key.rpartition(".")[2]
        original = functions[mangled.rpartition("__mutmut_")[0] + "__mutmut_orig"]
        function = _readable(mangled)
        if function not in module.integration:
            mutants.append(
                Mutant(
                    key=key,
                    function=function,
                    change=difference(original, functions[mangled]),
                    words=only_words(original, functions[mangled]),
                    code=code,
                )
            )
    return mutants


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name:
            name, node.name = node.name, "_"
            yield name, node


def _readable(mangled: str) -> str:
    """Return the name of a function as its module has it."""
    name = mangled.rpartition("__mutmut_")[0]
    return name.removeprefix("xǁ").replace("ǁ", ".") if name.startswith("xǁ") else name.removeprefix("x_")


def difference(original: ast.AST, mutant: ast.AST) -> str:
    """Return the lines that differ."""
    lines = difflib.ndiff(_lines(original), _lines(mutant))
    return "\n".join(f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "-+")


def _lines(function: ast.AST) -> list[str]:
    """Return a function's code, with a line for each parameter."""
    head, _, body = ast.unparse(function).partition("\n")
    return [*head.replace(", ", ",\n").splitlines(), *body.splitlines()]


def only_words(original: ast.AST, mutant: ast.AST) -> bool:
    """Return whether only the words of an error, or anything of a log line, differ."""
    pairs = list(_to_difference(original, mutant))
    above = [one for one, _ in pairs]
    if any(isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.") for node in above):
        return True
    in_error = any(isinstance(node, ast.Raise) or _makes_error(node) for node in above)
    return in_error and all(
        isinstance(node, ast.Constant) and isinstance(node.value, str) for node in pairs[-1]
    )


def _makes_error(node: ast.AST) -> bool:
    """True for a call of an error's class, or of a function of that class."""
    return isinstance(node, ast.Call) and any(
        part.endswith("Error") for part in ast.unparse(node.func).split(".")
    )


def _to_difference(one: ast.AST, other: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the pairs of nodes from the top to the smallest that holds all that differs."""
    yield one, other
    if type(one) is not type(other):
        return
    differing = []
    for name, value in ast.iter_fields(one):
        was = value if isinstance(value, list) else [value]
        now = getattr(other, name)
        now = now if isinstance(now, list) else [now]
        if len(was) != len(now):
            return
        differing += [(a, b) for a, b in zip(was, now, strict=True) if _dump(a) != _dump(b)]
    if len(differing) == 1 and all(isinstance(part, ast.AST) for part in differing[0]):
        yield from _to_difference(*differing[0])


def _dump(value: object) -> str:
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def problems_of(mutants: Sequence[Mutant], reasons: Sequence[Reason]) -> list[str]:
    """Return the survivors without a reason, and the reasons without a survivor."""
    given = {(reason.function, reason.change) for reason in reasons}
    living = _living(mutants)
    found = [
        f"{one.status}, without a reason: {one.function} ({one.key})\n{one.change}"
        for one in _unread(mutants, reasons)
    ]
    idle = sorted(given - {(one.function, one.change) for one in living})
    return found + [f"reason without a survivor: {function}\n{change}" for function, change in idle]


def _living(mutants: Sequence[Mutant]) -> list[Mutant]:
    return [one for one in mutants if not one.words and one.status != "killed"]


def _unread(mutants: Sequence[Mutant], reasons: Sequence[Reason]) -> list[Mutant]:
    given = {(reason.function, reason.change) for reason in reasons}
    return [one for one in _living(mutants) if (one.function, one.change) not in given]


def row(module: Module, mutants: Sequence[Mutant], reasons: Sequence[Reason], date: str, version: str) -> str:
    """Return a module's line of the list; mutants of which only the words differ are left out."""
    count = Counter(one.status == "killed" for one in mutants if not one.words)
    unread = len(_unread(mutants, reasons))
    reasoned = count[False] - unread
    survived = f", {reasoned} survived" if reasoned else ""
    without = f", {unread} without a reason" if unread else ""
    return f"- `{module.name}`: {count.total()}{survived}{without} ({date}, {version})"


def with_row(document: str, new: str) -> str:
    """Return the document with one line of its list put in or replaced."""
    before, _, outcome = document.partition(_BEGIN)
    rows = {line.split("`")[1]: line for line in outcome.splitlines() if line.startswith("- `")}
    rows[new.split("`")[1]] = new
    return f"{before}{_BEGIN}\n{_HEAD}\n" + "\n".join(rows[name] for name in sorted(rows)) + "\n"


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _version() -> str:
    """Return the commit that was tested, with a plus if the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty=+"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
