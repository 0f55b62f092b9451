"""Thompson's automaton of an expression, and the deterministic automaton of the same texts."""

import numpy as np

from unmask.constraints.budget import Budget
from unmask.constraints.byte_automaton import ByteMachine, minimise
from unmask.constraints.expression import Chain, Characters, Choice, Expression, Members, Repeat

Subset = frozenset[int]


def automaton(expression: Expression, budget: Budget, subject: str) -> ByteMachine:
    """The smallest deterministic automaton of the texts that an expression matches.

    Args:
        expression: The expression.
        budget: Limits of its size.
        subject: The name of the expression in messages.

    Returns:
        The automaton over bytes.
    """
    nfa = _NFA(budget, subject)
    end = nfa.new()
    return minimise(_Subsets(nfa, nfa.start(expression, end), end).machine(), budget, subject)


class _NFA:
    """Thompson's nondeterministic automaton over bytes, with epsilon edges and edges of byte sets."""

    def __init__(self, budget: Budget, subject: str) -> None:
        self.budget, self.subject = budget, subject
        self.epsilon: list[list[int]] = []
        self.edges: list[list[tuple[bytes, int]]] = []  # 256 bools as bytes, target
        self._starts: dict[tuple[int, int], int] = {}  # by part and the state after it

    def new(self, *epsilon: int) -> int:
        """Adds a state, with epsilon edges to other states."""
        self.budget.charge("NFA states", 1, self.subject)
        self.epsilon.append(list(epsilon))
        self.edges.append([])
        return len(self.epsilon) - 1

    def start(self, part: Expression, target: int) -> int:
        """The state from which the texts of a part lead to `target`.

        A part that occurs twice before the same target is built once. So a schema with shared
        definitions has the size of its graph, where the alternatives end alike.
        """
        key = id(part), target
        if key not in self._starts:
            self.budget.charge("steps", 1, self.subject)
            self._starts[key] = self._built(part, target)
        return self._starts[key]

    def _built(self, part: Expression, target: int) -> int:
        match part:
            case Characters():
                return self._characters(part, target)
            case Chain():
                for one in reversed(part.parts):
                    target = self.start(one, target)
                return target
            case Choice():
                starts = dict.fromkeys([self.start(one, target) for one in part.parts])
                return next(iter(starts)) if len(starts) == 1 else self.new(*starts)
            case Repeat():
                return self._repeat(part, target)
            case Members():
                return self._members(part, target)

    def _characters(self, part: Characters, target: int) -> int:
        state = {0: self.new(), 1: target}
        for origin, member, goal in part.edges:
            for name in (origin, goal):
                if name not in state:
                    state[name] = self.new()
            self.edges[state[origin]].append((member, state[goal]))
        return state[0]

    def _repeat(self, part: Repeat, target: int) -> int:
        if part.most is None:
            loop = self.new()
            self.epsilon[loop] = [self.start(part.part, loop), target]
            target = loop
        else:
            end = target
            for _ in range(part.most - part.least):
                inner = self.start(part.part, target)
                if inner == target:  # the part matches the empty text only
                    break
                target = self.new(inner, end)
        for _ in range(part.least):
            inner = self.start(part.part, target)
            if inner == target:
                break
            target = inner
        return target

    def _members(self, members: Members, target: int) -> int:
        after, some, may_end = target, -1, True  # behind a part; before the next one that occurs
        for part, required in reversed(members.parts):
            start = self.start(part, after)
            some = start if required or some < 0 else self.new(start, some)
            may_end = may_end and not required
            separated = self.start(members.separator, some)
            after = self.new(separated, target) if may_end else separated
        if not members.parts:
            return target
        return self.new(some, target) if may_end else some


class _Subsets:
    """Subset construction over classes of equal bytes."""

    def __init__(self, nfa: _NFA, start: int, end: int) -> None:
        self._nfa, self._start, self._end = nfa, start, end
        self._budget, self._subject = nfa.budget, nfa.subject
        names: dict[bytes, int] = {}
        self._edges = [
            [(names.setdefault(member, len(names)), goal) for member, goal in edges]
            for edges in nfa.edges
        ]
        masks = np.frombuffer(b"".join(names) or bytes(256), bool).reshape(-1, 256)
        columns, class_of = np.unique(masks, axis=1, return_inverse=True)
        self._class_of = class_of.reshape(-1)
        # for each class of bytes, the sets that have it, as bits of an integer
        packed = np.packbits(columns, axis=0, bitorder="little").T
        self._sets_of = [int.from_bytes(row.tobytes(), "little") for row in packed]
        self._closures: dict[int, Subset] = {}

    def machine(self) -> ByteMachine:
        """The deterministic automaton, not yet the smallest."""
        number = {self._closure(self._start): 0}
        table: list[list[int]] = []
        queue = list(number)
        for subset in queue:  # grows during the loop
            row = []
            for after in self._after(subset):
                if after not in number:
                    number[after] = len(queue)
                    queue.append(after)
                    self._budget.charge("steps", len(after), self._subject)
                row.append(number[after])
            table.append(row)
            self._budget.reach("states", len(queue), self._subject)
            self._budget.reach("transitions", len(queue) * len(row), self._subject)
        accepting = np.array([self._end in subset for subset in queue])
        return ByteMachine(np.array(table)[:, self._class_of], accepting)

    def _after(self, subset: Subset) -> list[Subset]:
        """The subset after each class of bytes."""
        goals: dict[int, set[int]] = {}  # by set of bytes
        for state in subset:
            for name, goal in self._edges[state]:
                goals.setdefault(name, set()).add(goal)
        present = sum(1 << name for name in goals)
        self._budget.charge("steps", len(self._sets_of) // 4 + 1, self._subject)
        found: dict[int, Subset] = {}
        rows = []
        for sets in self._sets_of:
            here = sets & present
            if here not in found:
                found[here] = self._union(
                    [goal for name, states in goals.items() if here >> name & 1 for goal in states]
                )
            rows.append(found[here])
        return rows

    def _union(self, states: list[int]) -> Subset:
        """The states that lead on from some states."""
        closures = [self._closure(state) for state in states]
        self._budget.charge("steps", sum(map(len, closures)) // 8 + len(closures), self._subject)
        return closures[0] if len(closures) == 1 else frozenset().union(*closures)

    def _closure(self, state: int) -> Subset:
        """The epsilon closure of a state, without states that have epsilon edges only."""
        if state not in self._closures:
            seen, queue = {state}, [state]
            while queue:
                fresh = [one for one in self._nfa.epsilon[queue.pop()] if one not in seen]
                seen.update(fresh)
                queue += fresh
            self._budget.charge("steps", len(seen), self._subject)
            self._closures[state] = frozenset(
                one for one in seen if self._edges[one] or one == self._end
            )
        return self._closures[state]
