"""The project *Make this job twice as fast*: four causes, each worth mending alone, together worth a factor of two."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from labkit import Processes, launch

pytestmark = [pytest.mark.weekly, pytest.mark.alone, pytest.mark.processes, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
ROUNDS, STEPS = 9, 10


def _fast_job():
    spec = importlib.util.spec_from_file_location("fast_job", HERE / "fast_job.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fast_job = _fast_job()
CAUSES = tuple(fast_job.CURES)
VARIANTS = {"slow": (), "fast": CAUSES} | {cause: (cause,) for cause in CAUSES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Iterator[dict[str, list[dict]]]:
    """Results of every variant in ROUNDS rounds, in each round in another order, on the same two workers."""
    jobs = {name: fast_job.job(*causes) for name, causes in VARIANTS.items()}
    path = tmp_path_factory.mktemp("project") / "rows.npy"
    checksum = jobs["slow"].write_data(path)
    done: dict[str, list[dict]] = {name: [] for name in jobs}
    rng = np.random.default_rng(0)
    with Processes(device="cpu", threads=1).ready(2) as pool:
        for _ in range(ROUNDS):
            for name in rng.permutation(list(jobs)):
                job = launch(jobs[name].train, 2, path, checksum, STEPS, world=Processes(pool=pool))
                done[name].append(job.results[0])
    return done


def gain(runs: dict[str, list[dict]], name: str) -> float:
    """How many times as fast as the slow job: the median over the rounds, each compared with itself."""
    seconds = {k: np.array([r["seconds"] for r in runs[k]]) for k in ("slow", name)}
    return float(np.median(seconds["slow"] / seconds[name]))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_cure_keeps_the_losses(runs, name):
    for run in runs[name]:
        assert np.allclose(run["losses"], runs["slow"][0]["losses"], rtol=0, atol=1e-4)


def test_all_cures_together_make_it_twice_as_fast(runs):
    assert gain(runs, "fast") >= 2


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cure_alone_makes_it_faster(runs, cause):
    assert gain(runs, cause) > 1.05
