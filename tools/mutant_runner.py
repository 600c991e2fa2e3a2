"""Make the mutants and run the tests on each, for `tools.mutants`, in the environment that has mutmut.

mutmut only makes the mutants: it would begin pytest anew for each of them. Here the tests are collected once,
and run once to learn which of them touch which function. Each mutant then gets a fork of the process, in
which the tests that touch its function run, the fastest first, until one fails.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import pytest
from mutmut.mutation import trampoline
from mutmut.mutation.file_mutation import mutate_file_contents

from tools.common import ROOT, say
from tools.mutants import KILLED, PACKAGE, SURVIVED, UNTESTED, Module, chosen, read_mutants, result_of

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_MOST_CPU_S: Final = 5
"""A mutant whose tests compute for so long and thrice as long as before counts as one that does not end."""
_MOST_WALL_S: Final = 1800
"""A mutant that waits so long is unclear, which fails the run: the machine may only have been busy."""

_BROKEN: Final = 3
"""Exit code of a fork in which pytest itself fails, which makes the mutant unclear."""


class Mutated:
    """Loads the mutated modules in the place of the package's own."""

    def __init__(self, modules: list[Module]) -> None:
        self._paths = {f"{PACKAGE}.{one.name.replace('/', '.')}": result_of(one) for one in modules}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a module as the import system asks for it."""
        place = self._paths.get(name)
        return importlib.util.spec_from_file_location(name, place) if place else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    item: pytest.Item
    cpu_s: float
    """How long it computes where nothing is changed."""


class Runner:
    """The test session: runs the tests once as they are, then on each mutant."""

    def __init__(self, modules: list[Module], *, again: bool) -> None:
        self._modules, self._again = modules, again
        self._failed = False
        self._touching: dict[str, list[_Test]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test has failed."""
        self._failed = self._failed or report.failed

    def pytest_sessionstart(self) -> None:
        """Remember no example, since one that failed another mutant would find this one by chance.

        And shrink none: nobody reads it.
        """
        from hypothesis import Phase, settings  # after its pytest plugin, not before

        phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target)
        settings.register_profile("mutants", settings(database=None, phases=phases))
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run everything; the session fails if a test fails where nothing is changed."""
        everything = self._learn(session.items)
        if self._failed:
            raise session.Failed("tests fail although nothing is changed")
        gc.freeze()  # a fork then copies little
        if (code := self._judge(everything, "nothing")) != SURVIVED:
            raise session.Failed(f"tests fail in a fork although nothing is changed: exit code {code}")
        for module in self._modules:
            mutants = read_mutants(module)
            codes = {one.key: one.code for one in mutants}
            for one in mutants:
                if one.words or (self._again and one.status == "killed"):
                    continue
                tests = self._touching.get(one.key.rpartition("__mutmut_")[0], [])
                codes[one.key] = self._judge(tests, one.key) if tests else UNTESTED
                result_of(module, ".json").write_text(json.dumps(codes))
                say(f"{codes[one.key]:4} {one.key}")
        return True

    def _learn(self, items: list[pytest.Item]) -> list[_Test]:
        """Run each test and note which functions it touches, and how long it computes."""
        touched: set[str] = set()
        trampoline.record_trampoline_hit = lambda name, caller=None: touched.add(name)
        trampoline.set_mutant_under_test("stats")
        tests = []
        for index, item in enumerate(items):
            touched.clear()
            began_s = time.process_time()
            _run(item, items[index + 1] if index + 1 < len(items) else None)
            tests.append(_Test(item=item, cpu_s=time.process_time() - began_s))
            for name in touched:
                self._touching.setdefault(name, []).append(tests[-1])
        return tests

    def _judge(self, tests: list[_Test], key: str) -> int:
        """Run tests on a mutant, in a process of its own; returns how they ended."""
        child = os.fork()
        if child == 0:
            try:
                os._exit(self._attack(sorted(tests, key=lambda test: test.cpu_s), key))
            finally:
                os._exit(_BROKEN)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return KILLED if code == -signal.SIGXCPU else code

    def _attack(self, tests: list[_Test], key: str) -> int:
        most_s = _MOST_CPU_S + int(3 * sum(test.cpu_s for test in tests))
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 1))
        signal.alarm(_MOST_WALL_S)
        trampoline.set_mutant_under_test(key)
        for test, following in zip_longest(tests, tests[1:]):
            _run(test.item, following.item if following else None)
            if self._failed:
                return KILLED
        return SURVIVED


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def mutate(module: Module) -> None:
    """Write a module's mutants, all in one file, and that none of them was run."""
    place, name = result_of(module), f"{PACKAGE}.{module.name.replace('/', '.')}"
    place.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / PACKAGE / f"{module.name}.py"
    made = mutate_file_contents(str(source), source.read_text())
    place.write_text(made.code)
    codes = {f"{name}.{mutant}": None for mutant in made.mutant_names}
    result_of(module, ".json").write_text(json.dumps(codes))


def main(arguments: list[str]) -> int:
    """Run the modules that are named; with ``--again`` only what was not killed before."""
    again = "--again" in arguments
    modules = chosen([name for name in arguments if name != "--again"])
    if not again:
        for module in modules:
            mutate(module)
    sys.meta_path.insert(0, Mutated(modules))
    tests = sorted({name for module in modules for name in module.tests})
    # The same examples each time: what is killed by chance would survive the next run.
    options = ["-q", "-m", "not spark", "--hypothesis-seed=0", "--timeout=0"]
    options += ["--assert=plain", "--tb=native"]  # nobody reads why a mutant fails
    return int(pytest.main([*options, *tests], plugins=[Runner(modules, again=again)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
