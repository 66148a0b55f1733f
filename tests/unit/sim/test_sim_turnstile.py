"""Costly steps of requests that arrive together, one at a time."""

import asyncio
import itertools

from harness.sim.turnstile import Turnstile


async def test_tasks_pass_in_the_order_in_which_they_came():
    turnstile, passed = Turnstile(), []

    async def go(number):
        await turnstile.wait()
        passed.append(number)

    await asyncio.gather(*(go(number) for number in range(5)))
    assert passed == list(range(5))


async def test_what_is_due_on_the_loop_comes_between_two_steps():
    turnstile, seen = Turnstile(), []
    loop = asyncio.get_running_loop()

    def due():
        seen.append("due")
        loop.call_soon(due) if len(seen) < 20 else None

    async def go(number):
        await turnstile.wait()
        seen.append(number)

    loop.call_soon(due)
    await asyncio.gather(*(go(number) for number in range(3)))
    steps = [i for i, what in enumerate(seen) if what != "due"]
    assert all("due" in seen[a:b] for a, b in itertools.pairwise(steps))


async def test_a_task_that_is_cancelled_while_it_waits_holds_nobody_up():
    turnstile = Turnstile()
    waiting = [asyncio.create_task(turnstile.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    async with asyncio.timeout(1):
        await waiting[2]
        await turnstile.wait()
