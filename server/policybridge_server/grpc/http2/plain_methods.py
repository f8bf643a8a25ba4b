"""Wraps a servicer's plain functions and generators as coroutines and asynchronous generators that run in a thread.

grpc.aio accepts such methods as well. They block, so they must not run on the loop thread.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

Method = Callable[[Any, Any], Any]

_END: Final = object()


def as_async(method: Method, *, requests: bool, responses: bool) -> Method:
    """Give an asynchronous method that calls ``method``; an asynchronous ``method`` is returned unchanged.

    Args:
        method: a servicer's method.
        requests: whether it takes an iterator of requests.
        responses: whether it gives an iterator of responses.

    """
    if _is_async(method):
        return method
    return partial(_answers if responses else _answer, method, requests)


def _is_async(method: Method) -> bool:
    while isinstance(method, partial):
        method = method.func
    called = method if inspect.isroutine(method) else getattr(method, "__call__", method)  # noqa: B004
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


async def _answer(method: Method, streams: bool, request: Any, context: Any) -> Any:
    with _OneThread() as thread:
        answer = await thread.run(method, thread.requests(request) if streams else request, context)
        # A plain function may call a coroutine function and return its awaitable.
        return await answer if inspect.isawaitable(answer) else answer


async def _answers(method: Method, streams: bool, request: Any, context: Any) -> AsyncIterator[Any]:
    with _OneThread() as thread:
        answers = await thread.run(method, thread.requests(request) if streams else request, context)
        if inspect.isawaitable(answers):
            await answers
        elif hasattr(answers, "__aiter__"):
            async for answer in answers:
                yield answer
        else:
            iterator = iter(answers)
            try:
                while (answer := await thread.run(next, iterator, _END)) is not _END:
                    yield answer
            finally:
                thread.close(iterator)


class _OneThread:
    """The thread of one call. Calls share no threads, so that a method that blocks does not delay other calls."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, "servicer")
        self._reading: set[Any] = set()

    def __enter__(self) -> "_OneThread":
        return self

    def __exit__(self, *_: object) -> None:
        # Wake up a method that still waits for a request.
        for read in self._reading:
            read.cancel()
        self._pool.shutdown(wait=False)

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._pool, work, *arguments)

    def requests(self, requests: AsyncIterator[Any]) -> Iterator[Any]:
        """Pass each request to the thread when it arrives."""
        while (request := self._next(requests)) is not _END:
            yield request

    def _next(self, requests: AsyncIterator[Any]) -> Any:
        read = asyncio.run_coroutine_threadsafe(_next(requests), self._loop)
        self._reading.add(read)
        try:
            return read.result()
        finally:
            self._reading.discard(read)

    def close(self, iterator: Iterator[Any]) -> None:
        """Close a generator in its thread, so that it leaves its ``with`` blocks there."""
        close = getattr(iterator, "close", None)
        if close is not None:
            self._pool.submit(close)


async def _next(requests: AsyncIterator[Any]) -> Any:
    return await anext(requests, _END)
