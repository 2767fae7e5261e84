"""Python as a process of its own, without loading torch anew: forked from a server that has loaded everything once.

A test session starts dozens of processes, and loading torch and Hydra takes each four seconds. The server is Python's
own (multiprocessing's "forkserver"). It has never run anything, so its children begin as a new interpreter does.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

LOADED = ["torch._dynamo", "dpot.launch", "dpot.synthesis", "sklearn.linear_model", "sklearn.ensemble"]
LOADED += [f"dpot.tasks.{name}" for name in ("adapt", "classify", "distance", "generate", "report", "reproduce")]


def start(
    words: Sequence[str], out: Path, err: Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> BaseProcess:
    """`python WORDS` (a file, -m MODULE or -c CODE), its output in two files. It leads a group of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    where = (str(out), str(err), dict(os.environ) if env is None else env, str(cwd or Path.cwd()))
    process = context.Process(target=_become, args=(list(map(str, words)), *where))
    process.start()
    return process


def kill(process: BaseProcess) -> None:
    """As kill -9 does, the process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()  # if it has not yet become the leader of a group
    process.join()


def _become(words: list[str], out: str, err: str, env: dict[str, str], cwd: str) -> None:
    os.setsid()
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    kind, name = words[0], words[1] if len(words) > 1 else ""
    if kind == "-m":
        sys.argv = [name, *words[2:]]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = [kind, *words[2:]]
        exec(compile(name, "-c", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        runpy.run_path(kind, run_name="__main__")
