"""Compares what the job counted with what the brokers acknowledged, order by order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.answers import Answering

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from testbed.ledger import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The job's state of one customer."""

    orders: int
    """How many orders it counted, doubled ones as often as counted."""
    amount: int
    """Cents."""
    numbers: frozenset[int]
    """Which orders it counted at least once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of every acknowledged order."""

    acknowledged: int
    counted: int
    """Additions the job made, doubled ones included."""
    lost: tuple[tuple[str, int], ...]
    """Customer and number of each acknowledged order the job never counted."""
    twice: Mapping[str, int]
    """Customer -> additions beyond the first of each order."""
    unknown: tuple[tuple[str, int], ...]
    """Orders the job counted though nobody ever sent them."""
    wrong_amounts: tuple[str, ...]
    """Customers with the right orders and a wrong sum."""

    @property
    def twice_count(self) -> int:
        """Additions beyond the first of each order."""
        return sum(self.twice.values())

    @property
    def right(self) -> bool:
        """True if each acknowledged order was counted exactly once, and nothing else was."""
        return not (self.lost or self.twice or self.unknown or self.wrong_amounts)

    def __str__(self) -> str:
        """Return the four numbers, and what else is wrong."""
        text = (
            f"acknowledged {self.acknowledged}, counted {self.counted}, "
            f"lost {len(self.lost)}, twice {self.twice_count}"
        )
        if self.unknown:
            text += f", never sent {len(self.unknown)}"
        if self.wrong_amounts:
            text += f", wrong sums for {len(self.wrong_amounts)} customers"
        return text


@dataclass(slots=True)
class _Expected:
    numbers: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)
    amounts: dict[int, int] = field(default_factory=dict)


def judge(ledger: Iterable[Entry], totals: Mapping[str, Total]) -> Judgement:
    """Compare; an order whose acknowledgement is unknown may be counted once or not at all."""
    expected: dict[str, _Expected] = defaultdict(_Expected)
    for entry in ledger:
        customer = expected[entry.order.customer]
        customer.amounts[entry.order.number] = entry.order.amount
        (customer.numbers if entry.offset is not None else customer.in_doubt).add(entry.order.number)
    lost: list[tuple[str, int]] = []
    unknown: list[tuple[str, int]] = []
    twice: dict[str, int] = {}
    wrong_amounts: list[str] = []
    nothing = Total(orders=0, amount=0, numbers=frozenset())
    for name in sorted(expected.keys() | totals.keys()):
        wanted, total = expected[name], totals.get(name, nothing)
        missing = wanted.numbers - total.numbers
        foreign = total.numbers - wanted.numbers - wanted.in_doubt
        extra = total.orders - len(total.numbers)
        lost += [(name, number) for number in sorted(missing)]
        unknown += [(name, number) for number in sorted(foreign)]
        if extra:
            twice[name] = extra
        right = not (missing or foreign or extra)
        if right and total.amount != sum(wanted.amounts[number] for number in total.numbers):
            wrong_amounts.append(name)
    return Judgement(
        acknowledged=sum(len(customer.numbers) for customer in expected.values()),
        counted=sum(total.orders for total in totals.values()),
        lost=tuple(lost),
        twice=twice,
        unknown=tuple(unknown),
        wrong_amounts=tuple(wrong_amounts),
    )


def numbers_of(bitmap: bytes) -> frozenset[int]:
    """Return the order numbers of Spark's bitmap: bit 0 is number 1."""
    return frozenset(
        8 * place + bit + 1
        for place, byte in enumerate(bitmap)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    )


def totals_of(answer: Mapping[str, Sequence[Any]]) -> dict[str, Total]:
    """Return the totals as a program in Spark's environment prints them: orders, amount, bitmap in hex."""
    return {
        customer: Total(orders=orders, amount=amount, numbers=numbers_of(bytes.fromhex(numbers)))
        for customer, (orders, amount, numbers) in answer.items()
    }


class StateReader(Answering):
    """``testbed/state_reader.py``."""

    def read(self, checkpoint: Path) -> dict[str, Total]:
        """Return the newest committed state of the job with this checkpoint."""
        return totals_of(self.ask({"checkpoint": str(checkpoint)})["totals"])

    def go_on(self, checkpoint: Path, options: Mapping[str, str]) -> dict[str, Total]:
        """Let plain Spark read on from the checkpoint to the end, and return the state then."""
        question = {"checkpoint": str(checkpoint), "options": dict(options)}
        return totals_of(self.ask(question)["totals"])
