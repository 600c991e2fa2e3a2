"""A seed's history: a setting, and steps of a few themes, so that rare things meet."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.histories.steps import Step
from testbed.histories.world import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ALWAYS = {"start": 4, "stop": 2, "take": 2, "produce": 4, "pass": 2, "kill": 1, "watch": 1}
THEMES: Mapping[str, Mapping[str, int]] = {
    "rewinds": {"start": 8, "stop": 4, "take": 4, "kill": 2, "lose-host": 2},
    "retention": {"prune": 8, "pin": 4, "verify": 4, "take": 9, "dispose": 1, "unpin": 1, "pass": 4},
    "cutovers": {"upgrade": 5, "rollback": 3, "kill": 2},
    "migration": {"migrate": 4, "settle": 2, "kill": 2},
    "roots": {"delete-root": 3, "import": 4, "start": 4},
    "drivers": {"kill": 6, "next-driver": 4, "watch": 4, "lose-host": 1},
    "crowd": {"start": 3, "stop": 3, "take": 2, "thaw": 4},
}
_NEXT: Mapping[str, Sequence[str]] = {
    "take": ("verify", "produce", "take", "prune", "pin", "kill", "start"),
    "verify": ("produce", "take", "prune"),
    "prune": ("pin", "pin", "prune", "take", "pass", "start"),
    "pin": ("prune", "prune", "take", "unpin"),
    "produce": ("take", "take", "stop", "kill", "pass"),
    "stop": ("start", "start", "take", "lose-host", "prune"),
    "kill": ("start", "start", "watch", "watch", "lose-host", "take", "stop", "upgrade"),
    "watch": ("migrate", "upgrade", "rollback", "stop", "take", "kill"),
    "lose-host": ("start", "start", "watch"),
    "start": ("produce", "kill", "stop", "take", "pass"),
    "upgrade": ("produce", "rollback", "kill", "upgrade", "watch"),
    "migrate": ("settle", "produce", "kill"),
    "pass": ("prune", "take", "take", "stop"),
    "next-driver": ("start", "watch", "upgrade"),
}
"""What often comes next, where it is of a theme."""
_CALLS = {"prune": 45, "pin": 12, "verify": 30, "take": 70, "stop": 30, "start": 70, "watch": 30}
"""How many calls a request makes, about; others some 150."""
_MOST_AGE_S = (30, 60, 120)


def a_history(seed: int) -> tuple[Setting, tuple[Step, ...]]:
    """Return what happens by a seed."""
    return Generator(seed).history()


class Generator:
    """Draws the steps of one history."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - to be repeated
        self.requests: list[Step] = []
        self.number = 0
        self.runs: set[str] = set()
        """Roots whose job runs, as far as one can tell: what cannot be done is asked for seldom."""
        self.last = "start"
        self.saved: set[str] = set()
        """Roots that have savepoints."""

    def history(self) -> tuple[Setting, tuple[Step, ...]]:
        """Draw a setting and steps."""
        draw = self.draw
        self.late = draw.random() < 0.2
        setting = Setting(
            queries=2 if self.late or draw.random() < 0.1 else 1,
            sink=draw.choice(("kafka", "delta", "foreachBatch")),
            shared=draw.random() < 0.7,
            ahead_s=draw.choice((0.0, 0.0, 0.0, 600.0, -600.0, 86_400.0)),
        )
        themes = draw.sample(sorted(THEMES), draw.choice((1, 1, 2, 2, 3)))
        weights = dict(_ALWAYS)
        for theme in themes:
            for do, weight in THEMES[theme].items():
                weights[do] = weights.get(do, 0) + weight
        self.troubled = draw.random() < 0.5
        self.crowded = "crowd" in themes
        self.two_roots = "roots" in themes and draw.random() < 0.6
        self.local = not setting.shared
        steps = [Step(do="produce", many=draw.randint(1, 5)), self._start(how="")]
        self.runs.add("r1")
        if "retention" in themes:
            steps += self._saved_before()
        steps += [self.step(weights) for _ in range(draw.randint(3, 14))]
        return setting, tuple(steps)

    def step(self, weights: Mapping[str, int]) -> Step:
        """Draw one step."""
        if self.requests and self.draw.random() < 0.08:
            return self._again()
        drawn = self._drawn(self._weights_of_next(weights))
        for _ in range(5):
            if self._makes_sense(drawn) or self.draw.random() < 0.1:
                break
            drawn = self._drawn(self._weights_of_next(weights))
        self._note(drawn)
        self.last = drawn.do
        return drawn

    def _weights_of_next(self, weights: Mapping[str, int]) -> Mapping[str, int]:
        """Prefer half of the time what comes next behind the last step."""
        following = [do for do in _NEXT.get(self.last, ()) if do in weights]
        if not following or self.draw.random() < 0.5:
            return weights
        return {do: following.count(do) for do in following}

    def _makes_sense(self, step: Step) -> bool:
        if step.do in ("stop", "upgrade", "rollback", "migrate", "kill"):
            return step.root in self.runs
        if step.do == "watch":
            return step.root not in self.runs
        if step.do == "start":
            named = "savepoint" in step.how or "latest" in step.how
            return step.root not in self.runs and (not named or step.root in self.saved)
        if step.do in ("pin", "verify", "dispose", "prune", "unpin"):
            return step.root in self.saved
        if step.do == "import":
            return bool(self.saved - {step.root})
        if step.do == "take":
            return step.root in self.runs or self.draw.random() < 0.3
        return step.do != "settle" or any(one.do == "migrate" for one in self.requests)

    def _note(self, step: Step) -> None:
        if step.do in ("start", "watch", "upgrade", "rollback"):
            self.runs.add(step.root)
        elif step.do in ("stop", "kill"):
            self.runs.discard(step.root)
        elif step.do == "lose-host" and step.host == "a":
            self.runs.clear()
        elif step.do == "delete-root":
            self.runs.discard(step.root)
            self.saved.discard(step.root)
        if step.do in ("take", "upgrade", "migrate", "import") or (step.do == "stop" and step.how != "plain"):
            self.saved.add(step.root)

    def _drawn(self, weights: Mapping[str, int]) -> Step:
        do = self.draw.choices(list(weights), list(weights.values()))[0]
        match do:
            case "start":
                return self._start(how=self._how())
            case "produce":
                return Step(do=do, many=self.draw.randint(1, 5))
            case "pass":
                return Step(do=do, seconds=self.draw.choice((5, 20, 60, 150)))
            case "kill":
                if self.draw.random() < 0.4:
                    return Step(do=do, root=self._root(), how="batch", which=self.draw.choice((0, -1, -1)))
                return Step(do=do, root=self._root(), many=self.draw.choice((0, 0, *range(1, 25))))
            case "next-driver":
                kind = self.draw.choice(("die", "die", "fail", "fail"))
                return Step(do=do, fault=(kind, self.draw.randint(1, 60)))
            case "lose-host":
                return Step(do=do, host=self._host())
            case "delete-root":
                return Step(do=do, root=self._root())
            case "thaw":
                return Step(do=do)
            case _:
                return self._ask(do)

    def _ask(self, do: str) -> Step:
        draw = self.draw
        how, script, many, seconds = "", "v1", 0, 0.0
        if do == "stop":
            how = draw.choice(("", "", "plain"))
        elif do == "upgrade":
            script = draw.choice(("v2-late" if self.late else "v2", "v2", "v3", "v2-broken"))
            how = draw.choice(("", "", "none"))
        elif do == "rollback":
            how = draw.choice(("", "", "fork", "re-emit"))
        elif do == "prune":
            many = draw.choice((0, 1, 1, 2))
            seconds = draw.choice((0.0, 0.0, *_MOST_AGE_S))
        return self._asked(
            Step(
                do=do,
                root=self._root() if do not in ("migrate", "settle") else "r1",
                host=self._host(),
                how=how,
                script=script,
                which=self._which(),
                many=many,
                seconds=seconds,
            )
        )

    def _start(self, *, how: str) -> Step:
        script = self.draw.choice((*["v1-late" if self.late else "v1"] * 9, "v1-broken"))
        claims = how.startswith("savepoint") and self.draw.random() < 0.2
        return self._asked(
            Step(
                do="start",
                root=self._root() if self.requests else "r1",
                host=self._host(),
                how=how,
                script=script,
                which=self._which(),
                many=int(claims),
            )
        )

    def _how(self) -> str:
        return self.draw.choice(
            (
                *("", "", "", "", "checkpoint", "fresh", "latest"),
                *("savepoint", "savepoint:fork", "savepoint:fork", "savepoint:re-emit", "latest:fork"),
            )
        )

    def _asked(self, step: Step) -> Step:
        """Give a request its number, and what befalls it."""
        self.number += 1
        fault = None
        if self.troubled and self.draw.random() < (0.6 if step.do == "prune" else 0.3):
            kinds = ("fail", "lost", "die", "die", *(("freeze",) if self.crowded else ()))
            fault = (self.draw.choice(kinds), self.draw.randint(1, _CALLS.get(step.do, 150)))
        for_s = self.draw.choice((3.0, 10.0, 30.0)) if self.crowded and self.draw.random() < 0.3 else 0.0
        retries = self.draw.choice((0, 0, 1) if step.do == "prune" else (0, 1, 1))
        step = replace(step, who=self.number, fault=fault, for_s=for_s, retries=retries)
        self.requests.append(step)
        return step

    def _again(self) -> Step:
        """Clear a task, as it was, or with another script."""
        step = self.draw.choice(self.requests[-4:])
        script = "v3" if step.do in ("start", "upgrade") and self.draw.random() < 0.3 else step.script
        return replace(step, script=script, fault=None, for_s=0.0)

    def _saved_before(self) -> list[Step]:
        """Return how a job comes to have some savepoints, so that there is something to keep."""
        saves = []
        for _ in range(self.draw.choice((0, 1, 2, 2, 3))):
            self.saved.add("r1")
            saves += [Step(do="pass", seconds=5), self._ask("take"), Step(do="produce", many=2)]
        return saves

    def _which(self) -> int:
        """Choose a savepoint: the oldest and the newest ones are of most interest."""
        return self.draw.choice((0, 0, 1, -1, -1, self.draw.randint(0, 5)))

    def _root(self) -> str:
        return "r2" if self.two_roots and self.draw.random() < 0.4 else "r1"

    def _host(self) -> str:
        return "b" if self.draw.random() < 0.25 else "a"


def as_script(setting: Setting, steps: Sequence[Step], found: str) -> str:
    """Return a history as a program that repeats it."""
    lines = "".join(f"    {step!r},\n" for step in steps)
    return (
        f"# {found}\n"
        "from testbed.histories.history import run_history\n"
        "from testbed.histories.steps import Step\n"
        "from testbed.histories.world import Setting\n\n"
        f"setting = {setting!r}\n"
        f"steps = (\n{lines})\n"
        "outcome = run_history(setting, steps)\n"
        "for step, told in zip([*steps, 'the way out'], outcome.told):\n"
        "    print(step, '->', told)\n"
        "print(outcome.wrong)\n"
    )
