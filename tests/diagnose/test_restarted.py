"""An incident of an earlier start: it ended with that start, and the newest one is what counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runs import BAD, START, STEPS, blow_up, incident, write

from tb_nanwatch.diagnose.postmortem import PostMortem, examine
from tb_nanwatch.store.catalog import Catalog

LATER = START + 1000


def again(logdir: Path, count: int, *events: object) -> None:
    steps = range(STEPS, STEPS + count)
    write(logdir, steps=steps, events=events, writer_id="w1", attempt=1, first_step=STEPS, wall_time=LATER)


def found(logdir: Path) -> PostMortem:
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    return examine(run)


def told(logdir: Path) -> tuple[str, str, int | None]:
    of = found(logdir)
    return of.verdict.headline, "\n".join(of.verdict.paragraphs), of.run.incidents[0].last_step


def test_a_run_that_was_mended_and_started_again(tmp_path: Path) -> None:
    blow_up(tmp_path, "loss")
    again(tmp_path, 30)
    headline, text, last = told(tmp_path)
    assert headline.startswith(f"Finite since it was started again at step {STEPS}; before that blew up at step {BAD}")
    assert f"still bad at step {STEPS - 1}, where that start of the run ended" in text
    assert f"at step {STEPS + 29}" not in text
    assert last == STEPS - 1


@pytest.mark.parametrize("count", [0, 9])
def test_a_start_that_has_shown_little_yet(tmp_path: Path, count: int) -> None:
    blow_up(tmp_path, "loss")
    again(tmp_path, count)
    assert told(tmp_path)[0].startswith(f"Blew up at step {BAD}")


def test_a_start_that_blew_up_again(tmp_path: Path) -> None:
    blow_up(tmp_path, "loss")
    again(tmp_path, 30, replace(incident("loss", STEPS + 5), wall_time=LATER + 5))
    headline, text, _ = told(tmp_path)
    assert headline.startswith(f"Blew up at step {BAD}")
    assert f"still bad at step {STEPS + 29}, where the run ended" in text


@pytest.mark.parametrize(
    ("count", "last", "status"), [(30, None, "mended"), (30, BAD + 2, "mended"), (9, None, "incident")]
)
def test_the_status_of_a_run_that_was_started_again(count: int, last: int | None, status: str, tmp_path: Path) -> None:
    blow_up(tmp_path, "loss", last=last)
    again(tmp_path, count)
    assert found(tmp_path).status == status


def test_a_run_that_blew_up_again_is_not_mended(tmp_path: Path) -> None:
    blow_up(tmp_path, "loss", last=BAD + 2)
    again(tmp_path, 30, replace(incident("loss", STEPS + 5), wall_time=LATER + 5))
    assert found(tmp_path).status == "incident"
