"""Launches from a notebook's cells, in JupyterLab's own kernel."""

import os
import queue
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

jupyter_client = pytest.importorskip("jupyter_client")
pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]


@pytest.fixture
def kernel(tmp_path_factory):
    place = tmp_path_factory.mktemp("by") / "file"  # a port that is chosen for it may be taken when it starts
    manager = jupyter_client.KernelManager(kernel_name="python3", transport="ipc", ip=str(place))
    manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)})
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def outputs(client, request: str, until: str = "") -> str:
    """What a cell printed, until it is idle or has printed ``until`` three times."""
    text, end = "", time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(queue.Empty):
            message = client.get_iopub_msg(timeout=1)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                text += content["text"]
            elif kind == "error":
                text += "\n".join([f"{content['ename']}: {content['evalue']}", *content["traceback"]])
            elif content.get("execution_state") == "idle":
                return text
            if until and text.count(until) >= 3:
                return text
    raise TimeoutError(text)


def workers(manager) -> list[psutil.Process]:
    kernel = psutil.Process(manager.provisioner.pid)
    servers = [c for c in kernel.children() if any("forkserver" in part for part in c.cmdline())]
    return [w for server in servers for w in server.children(recursive=True)]


def test_a_cells_function_runs_prints_fails_with_its_line_and_can_be_interrupted(kernel):
    manager, client = kernel
    client.execute("from labkit import launch\nimport time")
    first = client.execute(
        "def f(comm):\n    print('rank', comm.rank, 'here')\n    return comm.rank ** 2\n"
        "print(launch(f, 3, world='processes').results)"
    )
    said = outputs(client, first)
    assert "[0, 1, 4]" in said and said.count("here") == 3 and "[rank 2] rank 2 here" in said

    failing = client.execute(
        "def g(comm):\n    if comm.rank == 1:\n        return comm.rank / 0  # my own line\nlaunch(g, 2, world='processes')"
    )
    said = outputs(client, failing)
    assert "rank 1 raised ZeroDivisionError" in said and "# my own line" in said

    endless = client.execute(
        "def h(comm):\n    print('working')\n    time.sleep(1000)\nlaunch(h, 3, world='processes', timeout_s=900)"
    )
    outputs(client, endless, until="working")
    running = workers(manager)
    assert len(running) == 3
    manager.interrupt_kernel()
    assert "KeyboardInterrupt" in outputs(client, endless)
    _, alive = psutil.wait_procs(running, timeout=5)
    assert not alive

    again = client.execute("print(launch(f, 2, world='processes').results)")
    assert "[0, 1]" in outputs(client, again)
