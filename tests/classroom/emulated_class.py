"""A class on this machine: laptops that are hosts of an emulated network, each with a port of the given rate.

    python tests/classroom/emulated_class.py [LAPTOPS [MBIT [FILE]]]

joins them, runs the whole list, prints what it took, what was predicted from the measured links and what was measured, and
keeps the results in a file. The teacher has a host too.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from labkit import Link, Simulated, launch, machine
from labkit.comm.netns import Network
from labkit_book.classroom import lesson

ROOT = Path(__file__).resolve().parents[2]
QUIET = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONUNBUFFERED"), "1")
QUIET["PYTHONPATH"] = str(ROOT)
PROGRAM = [sys.executable, "-m", "labkit_book.classroom"]
SHAPES = {program.__name__: shape for program, shape in lesson.EXPERIMENTS.values()}
PAGE = ROOT / "notebooks" / "exercises" / "lesson_classroom.md"


def predicted(links, result):
    """The page's own prediction, from its cell."""
    [cell] = [
        c for c in re.findall(r"```{code-cell}.*?\n(.*?)```", PAGE.read_text(), re.S) if "def predicted" in c
    ]
    names = {**vars(lesson), "Link": Link, "Simulated": Simulated, "launch": launch}
    exec(cell, names)
    return names["predicted"](links, result)


class Class:
    """A room on a host of its own, and so many laptops. said: the teacher's lines so far."""

    def __init__(self, laptops, mbit):
        self.network = Network([mbit * 1e6 / 8] * (1 + laptops))
        self.said, self.running = [], []
        self.teacher = self.start(0, "--open", self.network.address(0))
        self.invitation = self.until("--join").split()[-2:]

    def start(self, host, *words):
        """The program on this host."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        enter = lambda: Network.enter(self.network.ways[host])  # noqa: E731
        process = subprocess.Popen(
            [*PROGRAM, *words], text=True, env=os.environ | QUIET, preexec_fn=enter, **pipes
        )
        self.running.append(process)
        return process

    def join(self, host, *words):
        return self.start(host, "--join", *self.invitation, "--name", f"laptop{host}", *words)

    def until(self, words):
        """The teacher's next line that says one of these."""
        while line := self.teacher.stdout.readline():
            self.said.append(line)
            if re.search(words, line):
                return line
        raise AssertionError(f"the teacher has ended: {self.said}")

    def type(self, words):
        print(words, file=self.teacher.stdin, flush=True)

    def run(self, number):
        """Run an experiment; what the teacher then reads."""
        self.type(number)
        return self.until("Done|failed|must be|takes two")

    def close(self):
        for process in self.running:
            process.kill()
            process.communicate()
        self.network.close()


def off(foretold, measured):
    return float(np.median(np.abs(foretold / measured - 1)))


def main(laptops=30, mbit=100, file=None):
    began = time.monotonic()
    with contextlib.closing(Class(laptops, mbit)) as here, tempfile.TemporaryDirectory() as folder:
        for host in range(1, 1 + laptops):
            here.join(host)
        for _ in range(laptops):
            here.until("is here")
        print(f"{laptops} laptops, ports of {mbit} Mbit/s: joined in {time.monotonic() - began:.1f} s")
        for number, name in ((1, "links"), (2, "all-reduces"), (3, "training")):
            assert "Done" in (said := here.run(number)), said
            print(f"{name}: done after {time.monotonic() - began:.1f} s", flush=True)
        path = Path(file or f"{folder}/class.json")
        here.type(path)
        here.type(9)
        here.until("must be")
        results = json.loads(path.read_text())
        for result in results:
            result["where"] = f"{laptops} emulated laptops, ports of {mbit} Mbit/s"
            result["machine"] = machine.describe()
            result["values"] = [[float(f"{x:.4g}") for x in np.ravel(each)] for each in result["values"]]
            result["values"] = np.reshape(
                result["values"], (laptops, *SHAPES[result["experiment"]](laptops))
            ).tolist()
        path.write_text(json.dumps(results))
        links, sums, _ = results
        measured = np.median(np.max(sums["values"], axis=0), axis=1)
        foretold = predicted(links, sums)
        for way, p, m in zip(lesson.WAYS, foretold, measured, strict=True):
            print(f"{way:<12} predicted {1e3 * p:8.1f} ms, measured {1e3 * m:8.1f} ms, ratio {p / m:.2f}")
        print(f"median of the four: {100 * off(foretold, measured):.0f} % off")
        return foretold, measured, time.monotonic() - began


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]), *sys.argv[3:])
