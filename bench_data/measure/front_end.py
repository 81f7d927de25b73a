#!/usr/bin/env python3
"""Measures the CPU time that the front end of a running server takes by request: `front_end.py PID URL MODEL WORDS`.

PID is the API server's process on this machine (Linux), WORDS a file of words that the tokenizer has as one token each. Several loads are sent,
and for each a line says how long the event loop (the main thread) and all other threads worked for a request. Needs aiohttp.
"""

import asyncio
import random
import sys
from pathlib import Path

import aiohttp

# Requests, in flight, words of a prompt, output tokens.
LOADS = [(32, 8, 128, 4), (200, 16, 128, 1), (100, 16, 1024, 1), (200, 16, 128, 4), (200, 200, 128, 4), (100, 16, 32, 64), (300, 300, 16, 64)]


def cpu_us(pid):
    """CPU time of the process's main thread, and of its others, µs (`/proc/PID/task/*/schedstat`, ns)."""
    by_thread = {task.name: int((task / "schedstat").read_text().split()[0]) / 1e3 for task in Path(f"/proc/{pid}/task").iterdir()}
    loop = by_thread.pop(str(pid))
    return loop, sum(by_thread.values())


async def send(session, slots, url, body):
    async with slots, session.post(f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        return sum([line.startswith(b"data:") async for line in answer.content])


async def load(pid, url, model, words, requests, in_flight, prompt, output):
    slots = asyncio.Semaphore(in_flight)
    bodies = [
        {"model": model, "prompt": " ".join(random.choices(words, k=prompt)), "max_tokens": output, "ignore_eos": True, "stream": True}
        for _ in range(requests)
    ]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(3600), connector=aiohttp.TCPConnector(limit=0)) as session:
        before = cpu_us(pid)
        chunks = sum(await asyncio.gather(*[send(session, slots, url, body) for body in bodies]))
        loop, others = (now - then for now, then in zip(cpu_us(pid), before))
    print(
        f"{requests} requests, {in_flight} in flight, {prompt} words, {output} tokens: loop {loop / requests:.0f} us/request "
        f"({loop / chunks:.0f} us/chunk), other threads {others / requests:.0f} us/request",
        flush=True,
    )


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    pid, url, model, words = sys.argv[1:]
    random.seed(1)
    for one in LOADS:
        asyncio.run(load(int(pid), url, model, Path(words).read_text().split(), *one))


if __name__ == "__main__":
    main()
