"""Serve handles over coroutine functions of this process."""

import asyncio
import contextvars


class Response:
    """What a handle's call returns, over a coroutine: awaitable, and to be cancelled by its own method.

    The coroutine runs in an empty context, as it would in another process.
    """

    def __init__(self, answer):
        self._task = asyncio.get_running_loop().create_task(answer, context=contextvars.Context())
        self.cancelled = False

    def __await__(self):
        return asyncio.shield(
            self._task
        ).__await__()  # as a call over the network: an await that ends leaves it running

    def cancel(self):
        self.cancelled = True
        self._task.cancel()


class Method:
    def __init__(self, function):
        self._function = function
        self.responses = []

    def remote(self, *arguments):
        self.responses.append(Response(self._function(*arguments)))
        return self.responses[-1]


class Handle:
    """A handle whose methods are coroutine functions in this process."""

    def __init__(self, **functions):
        for name, function in functions.items():
            setattr(self, name, Method(function))
