"""What is stored was run on a calm machine: its tools measure first, and refuse where something else runs."""

from pathlib import Path

import calm
import pytest
import sweeps

import notebooks

STEADY = [(0.020, 0.020), (0.021, 0.020)] * 20


@pytest.mark.parametrize(("rounds", "calm_enough"), [
    (STEADY, True),
    ([(0.1, 0.02), *STEADY], True),  # one round's hiccup
    ([(1.2 * wall, own) for wall, own in STEADY], False),  # somebody else has a sixth of the core
    ([(wall * (1 + (i % 4 == 0)), wall * (1 + (i % 4 == 0))) for i, (wall, _) in enumerate(STEADY * 2)], False),
], ids=["alone", "once late", "another has the core", "now quick, now slow"])  # fmt: skip
def test_a_loop_that_waits_or_runs_unevenly_shows_a_disturbed_machine(
    rounds: list[tuple[float, float]], calm_enough: bool
) -> None:
    assert (calm.disturbance(lambda: rounds) == "") == calm_enough


def test_on_a_disturbed_machine_nothing_is_run_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calm, "disturbance", lambda: "Something else runs.")
    made: list[str] = []
    monkeypatch.setattr(notebooks, "make", lambda md, root: made.append(md.stem))
    monkeypatch.setattr(notebooks, "record_time", lambda *_: made.append("its time"))
    lab = tmp_path / "lab.md"
    assert notebooks.run([lab], everything=True, root=tmp_path) == 1 and made == []
    assert notebooks.run([lab], everything=True, root=tmp_path, busy=True) == 0 and made == ["lab"]
    monkeypatch.setattr(sweeps, "compute", lambda script, where: made.append(where) or 1.0)
    name = next(sweeps.FOLDER.glob("*.py")).stem
    assert sweeps.main([name]) == 1 and len(made) == 1
    assert sweeps.main(["--busy", name]) == 0 and "beside other work" in made[1]
