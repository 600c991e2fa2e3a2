"""What counts of a module's mutants, and that the document holds what was found and allowed."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import pytest

from tools import mutants
from tools.common import ROOT
from tools.mutants import (
    KILLED,
    SURVIVED,
    UNTESTED,
    Module,
    Mutant,
    Reason,
    difference,
    only_words,
    problems_of,
    read_list,
    read_mutants,
    row,
    with_row,
)

if TYPE_CHECKING:
    from pathlib import Path

MUTATED = """
class Store:
    def xǁStoreǁread__mutmut_orig(self, key, most=3):
        return self.files[key]
    def xǁStoreǁread__mutmut_1(self, key, most=4):
        return self.files[key]
def x_find__mutmut_orig(a, b):
    if a:
        return b
def x_find__mutmut_1(a, b):
    if not a:
        return b
def x_find__mutmut_2(a, b):
    if a:
        return None
"""


def a_mutant(change: str = "- a\n+ b", *, code: int | None = SURVIVED, words: bool = False) -> Mutant:
    return Mutant(key="k", function="find", change=change, words=words, code=code)


def a_reason(change: str = "- a\n+ b") -> Reason:
    return Reason(module="m", function="find", change=change, reason="Because.")


def test_list_names_modules_with_their_tests_and_reasons_with_their_place():
    modules, reasons = read_list(
        '[[module]]\nname = "a/b"\ntests = ["t"]\nintegration = ["f"]\n'
        "[[survivor]]\nin = \"a/b::C.f\"\nchange = '''\n- x\n+ y\n'''\nreason = \"Same.\"\n"
    )
    assert modules == [Module(name="a/b", tests=("t",), integration=("f",))]
    assert reasons == [Reason(module="a/b", function="C.f", change="- x\n+ y", reason="Same.")]


def test_mutants_are_read_with_their_readable_place_change_and_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mutants, "FOLDER", tmp_path)
    path = tmp_path / "airflow_flinkstyle" / "a" / "b.py"
    path.parent.mkdir(parents=True)
    path.write_text(MUTATED)
    keys = {"a.b.xǁStoreǁread__mutmut_1": 0, "a.b.x_find__mutmut_1": 1, "a.b.x_find__mutmut_2": None}
    path.with_name("b.json").write_text(json.dumps(keys))
    module = Module(name="a/b", tests=())
    assert [(one.function, one.change, one.status) for one in read_mutants(module)] == [
        ("Store.read", "- most=3):\n+ most=4):", "survived"),
        ("find", "- if a:\n+ if not a:", "killed"),
        ("find", "- return b\n+ return None", "not run"),
    ]
    only_broker = Module(name="a/b", tests=(), integration=("find",))
    assert [one.function for one in read_mutants(only_broker)] == ["Store.read"]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("raise AnError('bad')", "raise AnError('XXbadXX')", True),
        ("raise Some.of('bad', state_after='l')", "raise Some.of('bad', state_after='L')", True),
        ("raise SomeError.of(x, state_after='l')", "raise SomeError.of(x, state_after=None)", False),
        ("raise SomeError.of(x)", "raise SomeError.of(None)", False),
        ("return SomeError(f'{a} ' 'is')", "return SomeError(f'{a} ' 'IS')", True),
        ("log.info('read %s', x)", "log.info('read %s', None)", True),
        ("log.info('read %s', x)", "log.info('read %s')", True),
        ("return 'bad'", "return 'XXbadXX'", False),
        ("return find('a')", "return find('A')", False),
        ("if a: raise AnError('bad')", "if not a: raise AnError('bad')", False),
    ],
)
def test_only_words_of_errors_and_log_lines_need_no_test(was: str, now: str, expected: bool):
    one, other = (ast.parse(f"def _(a, x):\n  {code}").body[0] for code in (was, now))
    assert only_words(one, other) is expected


def test_difference_shows_the_changed_lines_alone_and_each_parameter_on_its_own():
    one, other = (ast.parse(f"def _(a, b={b}, c=1):\n  return (a,\n    b)").body[0] for b in (1, 2))
    assert difference(one, other) == "- b=1,\n+ b=2,"


def test_survivor_without_a_reason_and_reason_without_a_survivor_are_problems():
    assert problems_of([a_mutant()], [a_reason()]) == []
    assert problems_of([a_mutant(words=True), a_mutant(code=KILLED)], []) == []
    (found,) = problems_of([a_mutant(code=UNTESTED)], [])
    assert found.startswith("untested, without a reason: find (k)")
    for gone in (a_mutant(code=KILLED), a_mutant(words=True), a_mutant("- a\n+ c", code=KILLED)):
        (found,) = problems_of([gone], [a_reason()])
        assert found.startswith("reason without a survivor: find")


def test_row_counts_what_has_to_be_found_and_replaces_the_one_before():
    found = [a_mutant(), a_mutant(code=KILLED), a_mutant(code=KILLED), a_mutant(words=True)]
    module = Module(name="b", tests=())
    assert row(module, found, [a_reason()], "2026-11-22", "abc") == "- `b`: 3, 1 survived (2026-11-22, abc)"
    new = row(module, found, [], "2026-11-22", "abc")
    assert new == "- `b`: 3, 1 without a reason (2026-11-22, abc)"
    document = with_row(
        with_row("# Title\n\n" + mutants._BEGIN + "\n", new.replace("abc", "old")), "- `a`: 1"
    )
    document = with_row(document, new)
    lines = document.splitlines()
    assert lines[0] == "# Title"
    assert [line for line in lines if line.startswith("- `")] == ["- `a`: 1", new]


def test_document_holds_exactly_the_modules_of_the_list():
    modules, _ = read_list(mutants.LIST.read_text())
    document = mutants.DOCUMENT.read_text()
    rows = [line.split("`")[1] for line in document.splitlines() if line.startswith("- `")]
    assert rows == sorted(module.name for module in modules)


def test_modules_and_their_tests_are_there_and_reasons_name_one_of_them():
    modules, reasons = read_list(mutants.LIST.read_text())
    for module in modules:
        assert (ROOT / mutants.PACKAGE / f"{module.name}.py").is_file()
        assert all((ROOT / name).exists() for name in module.tests)
    assert {one.module for one in reasons} <= {module.name for module in modules}
    assert len({(one.module, one.function, one.change) for one in reasons}) == len(reasons)
