"""Bounds the work and memory of unpickling from the instructions alone, without running them.

References let a small pickle build a large value, such as nested lists or repeated copies of a
long string. Here every value has a size, and each instruction that copies or hashes a value adds
its size to the work. Keys that may be chosen to collide in a dict are refused or counted at their
worst cost. Strings cannot be chosen so, since Python randomises their hashes.
"""

import pickletools
from dataclasses import dataclass

from unmask.errors import UnmaskError

LARGEST = 2**24  # bytes of a pickle; one with a tokenizer needs a tenth of it
TOO_LONG = f"it has more than {LARGEST:,} bytes of instructions"
INSTRUCTIONS = 2**20
WORK = 2**25  # values and characters that are copied or hashed
DEPTH = 100  # of nested tuples
_NUMBERS = range(-(2**63), 2**64)  # allowed as keys; larger numbers can share one hash
_PROBES = 64  # dict probes that cost as much as one unit of work

_PLAIN = {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1"}
_CONTAINERS = {"EMPTY_DICT": "table", "EMPTY_SET": "set"}
_ORDERED, _COUNTER, _SET = "collections.OrderedDict", "collections.Counter", "builtins.set"
# Python 2 names, which pickle protocol 2 writes
_OLD = {"builtins.long": "builtins.int", "builtins.unicode": "builtins.str"}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(eq=False, slots=True)
class _Value:
    """A value that the pickle would build, with its costs."""

    size: int = 1  # values and characters in a copy of it
    hashed: int = 1  # values that its hash visits; a tuple does not cache its hash
    depth: int = 0
    parts: list["_Value"] | None = None  # of a tuple
    name: str | None = None  # of a callable
    text: str | None = None
    plain: int | float | None = None  # a number or boolean; 0 for None
    kind: str = ""  # table or set, or the name of the callable that built it
    items: list["_Value"] | None = None  # of a list
    keys: int = 0  # number of key insertions
    counted: int = 0  # length of the initial run of keys 0, 1, 2, …


def names_within_bounds(instructions: bytes) -> set[str]:
    """The global names in a pickle; an error if it exceeds the limits of a checkpoint."""
    if len(instructions) > LARGEST:
        raise UnmaskError(TOO_LONG)
    machine = _CostMachine()
    for count, (operation, argument, _) in enumerate(pickletools.genops(instructions)):
        if count >= INSTRUCTIONS:
            raise UnmaskError(f"it has more than {INSTRUCTIONS:,} instructions")
        machine.execute(operation.name, argument)
    return machine.names


class _CostMachine:
    """A pickle machine whose stack holds the costs of values instead of values."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.work = 0
        self._stack: list[_Value] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Value] = {}

    def execute(self, operation: str, argument: object) -> None:
        stack = self._stack
        match operation:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                self._marks.append(len(stack))
            case "BINPUT" | "LONG_BINPUT":
                assert isinstance(argument, int)
                self._memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                assert isinstance(argument, int)
                stack.append(self._memo[argument])
            case "BINUNICODE" | "SHORT_BINSTRING":
                assert isinstance(argument, str)
                stack.append(_Value(len(argument) + 1, text=argument))
            case "GLOBAL":
                name = str(argument).replace(" ", ".").replace("__builtin__", "builtins")
                name = _OLD.get(name, name)
                self.names.add(name)
                stack.append(_Value(name=name))
            case "TUPLE":
                stack.append(_tuple(self._marked()))
            case "APPEND" | "APPENDS" | "SETITEM" | "SETITEMS":
                self._put(operation)
            case "REDUCE" | "NEWOBJ":
                given, called = stack.pop(), stack.pop()
                stack.append(self._call(called, given))
            case "BUILD":
                state = stack.pop()
                if stack[-1].kind == _ORDERED and state.kind not in ("table", _ORDERED):
                    raise UnmaskError("it holds a state that is no dict")
                self._add(state.size + sum(part.size for part in state.parts or ()))
            case "BINPERSID":
                storage = stack.pop().parts or []
                if len(storage) != 5 or storage[2].text is None:
                    raise UnmaskError("it holds tensor data without a name")
                stack.append(_Value())
            case _ if operation in _TUPLES:
                stack.append(_tuple(self._last(_TUPLES[operation])))
            case _ if operation in _PLAIN:
                stack.append(_Value(plain=argument if isinstance(argument, int | float) else 0))
            case "EMPTY_LIST":
                stack.append(_Value(items=[]))
            case _ if operation in _CONTAINERS:
                stack.append(_Value(kind=_CONTAINERS[operation]))
            case _:
                raise UnmaskError(f"it holds {operation}, which torch.save does not write")

    def _put(self, operation: str) -> None:
        """Adds items to a list or a dict and hashes the keys."""
        pairs = operation.startswith("SETITEM")
        many = operation.endswith("S")
        items = self._marked() if many else self._last(2 if pairs else 1)
        target = self._stack[-1]
        if pairs:
            for key in items[::2]:
                self._put_key(target, key)
        elif target.items is None:
            raise UnmaskError("it appends to a value that is no list")
        else:
            target.items += items
        target.size += sum(item.hashed for item in items)

    def _put_key(self, table: _Value, key: _Value) -> None:
        """Adds the work of a key insertion; the probe for a number may visit all other keys."""
        work = key.hashed
        if key.plain is not None:
            if not _NUMBERS.start <= key.plain < _NUMBERS.stop:
                raise UnmaskError("it has a key that is a number of more than 64 bits")
            if key.plain == table.counted == table.keys:  # consecutive numbers do not collide
                table.counted += 1
            else:
                work += table.keys // _PROBES
        elif key.parts is not None:
            if not all(part.text is not None for part in key.parts):
                raise UnmaskError("it has a key that is a tuple of other things than strings")
        elif key.text is None and key.name is None:
            raise UnmaskError("it has a key that is no string and no number")
        table.keys += 1
        table.size += work - key.hashed
        self._add(work)

    def _call(self, called: _Value, given: _Value) -> _Value:
        """The result of a call, which may copy and hash all of its arguments."""
        if called.name is None or given.parts is None:
            raise UnmaskError("it calls an object without a name")
        if called.name == "_codecs.encode" and [part.text for part in given.parts[1:]] != [
            "latin1"
        ]:
            raise UnmaskError("it holds bytes in another encoding than pickles use")
        size = 1 + sum(part.size for part in given.parts)
        self._add(size)
        made = _Value(size, kind=called.name)
        if called.name in (_ORDERED, _COUNTER, _SET) and given.parts:
            self._fill(made, given.parts)
        return made

    def _fill(self, made: _Value, given: list[_Value]) -> None:
        """Fills a set from a list or a counter from a dict; other arguments are an error."""
        first = given[0]
        if made.kind == _SET and len(given) == 1 and first.items is not None:
            for member in first.items:
                self._put_key(made, member)
        elif made.kind == _COUNTER and len(given) == 1 and first.kind == "table":
            made.keys = first.keys
        else:
            raise UnmaskError(f"it builds a {made.kind} in another way than pickles do")

    def _add(self, work: int) -> None:
        self.work += work
        if self.work > WORK:
            raise UnmaskError(f"it grows to more than {WORK:,} values")

    def _marked(self) -> list[_Value]:
        return self._last(len(self._stack) - self._marks.pop())

    def _last(self, count: int) -> list[_Value]:
        """Pops `count` values off the stack."""
        start = len(self._stack) - count
        if start < 0:
            raise UnmaskError("its instructions are incomplete")
        items = self._stack[start:]
        del self._stack[start:]
        return items


def _tuple(parts: list[_Value]) -> _Value:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEPTH:
        raise UnmaskError("it is nested too deeply")
    hashed = 1 + sum(part.hashed for part in parts)
    return _Value(hashed, hashed, depth, parts)
