"""Equal constraints are compiled once, one at a time, and a cancelled compilation leaves nothing behind."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from unmask.cancellation import cancelled_by, raise_if_cancelled
from unmask.constraints.compile_cache import CompileCache
from unmask.constraints.compiled import Compiled, compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


class Stopped(BaseException):
    pass


def letters(pattern: str) -> Compiled:
    return compile_constraint(Constraint(pattern), [b"a", b"b", None], Vocabulary(3, 2))


def stop() -> None:
    raise Stopped


def test_equal_constraints_of_several_threads_are_compiled_once():
    cache = CompileCache()
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(cache.compiled, "a+", lambda: letters("a+")) for _ in range(8)]
        found = {id(job.result()) for job in jobs}
    assert len(found) == 1 and cache.compilations == 1


def test_a_refusal_is_kept_too():
    cache = CompileCache()
    for _ in range(3):
        with pytest.raises(UnmaskError, match="a backreference is not supported"):
            cache.compiled("x", lambda: letters(r"(a)\1"))
    assert cache.compilations == 1


def test_a_cancelled_compilation_is_done_by_a_job_that_waits():
    cache, begun, cancelled = CompileCache(), threading.Event(), threading.Event()

    def slow() -> Compiled:
        begun.set()
        cancelled.wait(60)
        raise_if_cancelled()
        raise AssertionError("the job was cancelled")

    def first() -> None:
        with cancelled_by(stop):
            cache.compiled("a", slow)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert begun.wait(60)
        other = pool.submit(cache.compiled, "a", lambda: letters("a"))
        cancelled.set()
        assert other.result().constraint.regex == "a"
        with pytest.raises(Stopped):
            one.result()
    assert cache.compilations == 2


@pytest.mark.parametrize("key", ["a", "b"], ids=["the same constraint", "another one"])
def test_a_job_that_waits_can_be_cancelled(key):
    cache, begun, end = CompileCache(), threading.Event(), threading.Event()

    def slow() -> Compiled:
        begun.set()
        end.wait(60)
        return letters("a")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cache.compiled, "a", slow)
        assert begun.wait(60)
        with cancelled_by(stop), pytest.raises(Stopped):
            cache.compiled(key, lambda: letters("a"))
        end.set()
        assert running.result()


def test_the_oldest_results_leave_when_the_bytes_are_used_up():
    most = 3 * letters("a").nbytes
    cache = CompileCache(most)
    for name in ("a", "b", "c", "a", "d"):
        cache.compiled(name, lambda name=name: letters("a"))
    assert cache.compilations == 4 and cache.bytes <= most
    cache.compiled("a", lambda: letters("a"))
    assert cache.compilations == 4
    cache.compiled("b", lambda: letters("a"))
    assert cache.compilations == 5


@pytest.mark.parametrize(
    "pattern", ["A" * 4000, "(?:a?){4000}", "(a|b)*a(a|b){10}", r"[^a]\w{3}(?i:é)"]
)
def test_a_compilation_ends_as_soon_as_its_job_is_cancelled(pattern):
    checks = []

    def check() -> None:
        checks.append(1)
        if len(checks) == 20:
            raise Stopped

    with cancelled_by(check), pytest.raises(Stopped):
        letters(pattern).machine  # noqa: B018
    assert len(checks) == 20
