"""Where a handler is: of a thread, a coroutine, and in what faulthandler wrote."""

from __future__ import annotations

import asyncio
import inspect
import threading

from pulse_django.run import execute
from pulse_django.worker import handler_stacks
from pulse_django.worker.handler_stacks import TITLE, stack_in_dump, stack_of_coroutine, stack_of_thread

SECRET = "hunter2"


def _waits(begun: threading.Event, over: threading.Event, password: str) -> None:
    begun.set()
    over.wait(60)


def test_the_stack_of_a_thread_has_lines_and_no_values() -> None:
    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=_waits, args=(begun, over, SECRET))
    thread.start()
    begun.wait(60)
    stack = stack_of_thread(thread.ident or 0)
    over.set()
    thread.join()
    assert stack.startswith(TITLE)
    assert f'File "{__file__}"' in stack
    assert "in _waits\n    over.wait(60)" in stack
    assert SECRET not in stack
    assert stack_of_thread(thread.ident or 0) == "", "it is gone"


async def _inner() -> None:
    await asyncio.Event().wait()


async def _outer() -> None:
    await _inner()


def test_the_stack_of_a_coroutine_goes_through_what_it_awaits() -> None:
    async def look() -> str:
        task = asyncio.create_task(_outer())
        await asyncio.sleep(0.01)
        stack = stack_of_coroutine(task.get_coro(), threading.get_ident())
        task.cancel()
        return stack

    stack = asyncio.run(look())
    assert stack.index("in _outer") < stack.index("in _inner") < stack.index("in wait")


def test_a_coroutine_that_is_at_work_is_where_its_thread_is() -> None:
    found = []

    async def works() -> None:
        found.append(stack_of_coroutine(asyncio.current_task().get_coro(), threading.get_ident()))  # type: ignore[union-attr]

    asyncio.run(works())
    assert "in works" in found[0]


def test_of_a_dump_only_threads_that_run_handlers_are_told() -> None:
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    dump = f"""Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3/selectors.py", line 415 in select
  File "{handler_stacks.__file__}", line 1 in _listen

Current thread 0x00007f02 (most recent call first):
  File "{__file__}", line {line} in poll
  File "/srv/shop/tasks.py", line 12 in send
  File "{execute.__file__}", line 90 in _called
  File "{execute.__file__}", line 42 in perform
  File "/srv/manage.py", line 9 in <module>
"""
    assert stack_in_dump(dump) == (
        f'{TITLE}  File "/srv/shop/tasks.py", line 12, in send\n'
        f'  File "{__file__}", line {line}, in poll\n'
        "    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]\n"
    )
    assert stack_in_dump("") == stack_in_dump("Fatal Python error") == ""
