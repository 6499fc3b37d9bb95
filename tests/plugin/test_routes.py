"""Every route: what it answers, and what it says to nonsense."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
from operations import post_mortem
from served import Server

from tb_nanwatch.diagnose.strict import dumps
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.plugin import static

NAN, MEASURED = 1, 16


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def answer(server: Server, route: str, **args: Any) -> Any:
    response = server.get(route, **args)
    assert response.status_code == 200, response.get_data(as_text=True)
    assert response.content_type == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    return json.loads(response.get_data(as_text=True), parse_constant=refuse)


def test_runs(server: Server) -> None:
    said = answer(server, "/runs")
    assert set(said) == {"runs", "reload_interval", "loading", "logdir", "damage"}
    assert (said["loading"], said["reload_interval"], said["damage"]) == (False, 0, [])
    healthy, bad = said["runs"]
    assert (healthy["run"], healthy["status"], healthy["incidents"]) == (".", "healthy", 0)
    version = bad.pop("version")
    updated = bad.pop("updated")
    assert isinstance(version, str)
    assert updated >= runs.START
    assert bad == {
        "run": "bad",
        "status": "incident",
        "headline": "Blew up at step 30: first in the gradient of dense/kernel (128 of 1,024 elements NaN)",
        "first_step": 0,
        "last_step": 39,
        "steps": 40,
        "last_finite_step": 29,
        "incidents": 1,
        "findings": 0,
        "tensors": 11,
        "attempts": [{"attempt": 0, "first_step": 0, "last_step": 39, "wall_time": runs.START}],
        "started": runs.START,
        "ended": True,
    }


def test_no_runs_at_all(tmp_path: Path) -> None:
    server = Server(tmp_path / "not yet")
    said = answer(server, "/runs")
    assert (said["runs"], said["loading"]) == ([], False)
    assert server.plugin.is_active() is False


def test_report(server: Server) -> None:
    said = answer(server, "/report", run="bad")
    assert said["incidents"][0]["origin"]["tensor"] == "dense/kernel"
    assert said["headline"].startswith("Blew up at step 30")
    assert said["paragraphs"][0].startswith("At step 30, in the backward pass")
    assert said["notes"] == []
    offered = {remedy["name"]: remedy for remedy in said["incidents"][0]["remedies"]}
    assert all({"title", "why", "snippet", "trial"} <= set(remedy) for remedy in offered.values())
    assert said["about"] == {
        "entry_point": "keras_fit",
        "every": 10,
        "host": "host",
        "versions": {"keras": "3"},
        "options": {},
    }


def test_remedies_have_titles_and_those_of_findings_are_whole(tmp_path: Path) -> None:
    """Deep layers whose gradients vanish: a finding, and what to do about it."""
    rows = [("gradient", f"deep_{n}/kernel", f"deep_{n}", "Dense", (8, 8)) for n in range(6)]
    rows += [("weight", name, layer, cls, shape) for _, name, layer, cls, shape in rows]
    rows.append(("loss", "loss", "", "", ()))

    def vanishing(info: TensorInfo, step: int) -> float:
        return 1e-14 ** (1 - int(info.layer[-1]) / 5) if info.kind == "gradient" else runs.calm(info, step)

    runs.write(tmp_path, vanishing, infos=runs.network(rows))
    server = Server(tmp_path)
    (finding,) = (f for f in answer(server, "/report", run=".")["findings"] if f["rule"] == "vanishing_gradient")
    titles = {remedy["name"]: remedy["title"] for remedy in finding["remedies"]}
    assert titles == {
        "use_activation_or_normalization": "use activation or normalization",
        "initializer": "choose another initializer",
    }
    assert all(remedy["why"] for remedy in finding["remedies"])
    server.plugin.board.stop()


def test_a_slot_that_was_lost_before_the_weights_is_told(tmp_path: Path) -> None:
    slot = {"name": "Adam's second moment of dense/kernel", "step": 8, "oldest": 0, "nan": False}
    post_mortem(tmp_path / "slot", "Square", phase="update", replay={"slot": slot})
    post_mortem(tmp_path / "other", "Log")
    server = Server(tmp_path)
    said = {run: answer(server, "/report", run=run)["incidents"][0]["lost"] for run in ("slot", "other")}
    assert said["slot"].startswith("Adam's second moment of dense/kernel overflowed at step 8; the weights followed")
    assert said["other"] == ""
    server.plugin.board.stop()


def test_tensors(server: Server) -> None:
    said = answer(server, "/tensors", run="bad")
    assert said["steps"] == {"first": 0, "last": 39, "count": 40}
    assert list(said["kinds"]) == ["weight", "gradient", "applied", "activation", "update", "input"]
    assert said["kinds"]["weight"][1] == {
        "row": 1,
        "tag": "weight/out/kernel",
        "name": "out/kernel",
        "layer": "out",
        "layer_class": "Dense",
        "dtype": "float32",
        "shape": [64, 1],
        "order": 9,
        "trainable": True,
    }
    assert [scalar["tag"] for scalar in said["scalars"]] == ["loss/loss", "metric/mae"]


def tile(body: bytes) -> tuple[int, int, Any, Any, Any]:
    level, rows, bins, first = struct.unpack_from("<IIIq", body, 4)
    assert body[:4] == b"NWT1"
    assert bins == 256
    assert len(body) == 24 + rows * 256 * 5
    low, high = np.frombuffer(body, "<u2", 2 * rows * 256, 24).reshape(2, rows, 256)
    return level, first, low, high, np.frombuffer(body, np.uint8, rows * 256, 24 + 4 * rows * 256).reshape(rows, 256)


@pytest.mark.parametrize("level", [0, 1, 5, 40])
def test_tile(level: int, server: Server) -> None:
    response = server.get("/tile", run="bad", kind="gradient", level=level, tile=0)
    assert response.content_type == "application/octet-stream"
    got_level, first, low, high, state = tile(response.data)
    assert (got_level, first, state.shape) == (level, 0, (2, 256))
    bad = 30 >> level
    assert state[0, bad] & (NAN | MEASURED) == NAN | MEASURED
    assert (state[:, (39 >> level) + 1 :] == 0).all()
    if level == 0:
        assert low[0, 0] == high[0, 0] == magnitude.encode(0.5)
        assert (state[:, :30] == MEASURED).all()
        assert low[0, 30] == 0


def test_tile_rows_and_beyond(server: Server) -> None:
    args = {"run": "bad", "kind": "gradient", "level": 0}
    assert tile(server.get("/tile", **args, tile=0, rows="1:2").data)[2].shape == (1, 256)
    assert tile(server.get("/tile", **args, tile=0, rows="1:99").data)[2].shape == (1, 256)
    assert tile(server.get("/tile", **args, tile=0, rows="50:99").data)[2].shape == (0, 256)
    _, first, *planes = tile(server.get("/tile", **args, tile=7).data)
    assert first == 7 * 256
    assert not any(plane.any() for plane in planes)
    _, _, *planes = tile(server.get("/tile", run="bad", kind="gradient", level=40, tile=31).data)
    assert not any(plane.any() for plane in planes)


def test_applied_gradients_are_rows_of_their_own(tmp_path: Path) -> None:
    def clipped(info: TensorInfo, step: int) -> float:
        return 0.125 if info.kind == "applied" else runs.calm(info, step)

    rows = (*runs.TABLE, ("applied", "dense/kernel", "dense", "Dense", (16, 64)))
    runs.write(tmp_path, clipped, infos=runs.network(rows))
    server = Server(tmp_path)
    (row,) = answer(server, "/tensors", run=".")["kinds"]["applied"]
    assert (row["tag"], row["row"]) == ("applied/dense/kernel", 0)
    _, _, low, _, state = tile(server.get("/tile", run=".", kind="applied", level=0, tile=0).data)
    assert (low[0, :40] == magnitude.encode(0.125)).all()
    assert (state[0, :40] == MEASURED).all()
    tags = ("gradient/dense/kernel", "applied/dense/kernel")
    before, after = (series(server.get("/series", run=".", tag=tag).data)[3][0] for tag in tags)
    assert (before, after) == pytest.approx((0.5, 0.125), rel=0.005)
    server.plugin.board.stop()


def series(body: bytes) -> tuple[int, Any, Any, Any, Any]:
    count, per_point, zero = struct.unpack_from("<III", body, 4)
    assert (body[:4], zero, len(body)) == (b"NWS1", 0, 16 + 25 * count)
    step, low, high = np.frombuffer(body, "<f8", 3 * count, 16).reshape(3, count)
    return per_point, step, low, high, np.frombuffer(body, np.uint8, count, 16 + 24 * count)


def test_series(server: Server) -> None:
    per_point, step, low, high, state = series(server.get("/series", run="bad", tag="gradient/dense/kernel").data)
    assert per_point == 1
    assert step.tolist() == list(range(40))
    assert low[0] == high[0] == pytest.approx(0.5, rel=0.005)
    assert np.isnan(low[30])
    assert state[29:31].tolist() == [MEASURED, MEASURED | NAN]


def test_series_of_a_scalar_and_of_a_stretch(server: Server) -> None:
    _, step, low, _, _ = series(server.get("/series", run=".", tag="loss/loss", first=5, last=9).data)
    assert step.tolist() == [5, 6, 7, 8, 9]
    assert low[0] == pytest.approx(runs.calm(runs.network()[3], 5))


def test_series_in_bins_keeps_a_nan(server: Server) -> None:
    per_point, step, _, _, state = series(
        server.get("/series", run="bad", tag="gradient/dense/kernel", bins=5, last=30).data
    )
    assert per_point == 8
    assert len(step) <= 5
    assert state[-1] & NAN


def test_series_beyond_the_run_is_empty(server: Server) -> None:
    assert len(series(server.get("/series", run=".", tag="loss/loss", first=1000).data)[1]) == 0


def test_cell(server: Server) -> None:
    said = answer(server, "/cell", run="bad", tag="gradient/dense/kernel", step=30)
    assert (said["measured_step"], said["state"], said["iteration"]) == (30, ["nan"], 30)
    assert said["norm"] == "NaN"
    assert said["wall_time"] == runs.START + 30
    assert said["counts"] == {"step": 30, "nan": 5, "pos_inf": 0, "neg_inf": 0, "size": 4096}
    assert said["full"]["step"] == 0
    assert said["full"]["max_abs"] == pytest.approx(0.25, rel=0.005)
    assert set(said["full"]) == {
        *("step", "max_abs", "mean", "zero_share", "subnormal_share", "headroom_octaves", "update_ratio"),
    }


def test_cell_of_a_scalar(server: Server) -> None:
    said = answer(server, "/cell", run=".", tag="loss/loss", step=1000)
    assert "norm" not in said
    assert said["value"] == pytest.approx(runs.calm(runs.network()[3], 39))
    assert (said["measured_step"], said["full"], said["counts"]) == (39, None, None)


GOOD = {
    "/runs": {},
    "/report": {"run": "bad"},
    "/tensors": {"run": "bad"},
    "/tile": {"run": "bad", "kind": "weight", "level": "0", "tile": "0", "rows": "0:1", "attempt": "0"},
    "/series": {
        "run": "bad",
        "tag": "weight/out/kernel",
        "stat": "norm",
        "first": "0",
        "last": "9",
        "bins": "5",
        "attempt": "0",
    },
    "/cell": {"run": "bad", "tag": "weight/out/kernel", "step": "5", "attempt": "0"},
}
NONSENSE = ["", " ", "-1", "1.5", "NaN", "1e3", "9" * 400, "\x00", "\x1b[31m", "../..", "<script>", "%", "\U0001f600"]
FREE = ("run", "tag")  # any text may be a name: an unknown one is a 404


@pytest.mark.parametrize("route", GOOD)
def test_good_parameters(route: str, server: Server) -> None:
    assert server.get(route, **GOOD[route]).status_code == 200


@pytest.mark.parametrize(("route", "name"), [(route, name) for route, args in GOOD.items() for name in args])
@pytest.mark.parametrize("value", NONSENSE)
def test_malformed_parameters(route: str, name: str, value: str, server: Server) -> None:
    response = server.get(route, **{**GOOD[route], name: value})
    text = response.get_data(as_text=True)
    assert response.status_code == (404 if name in FREE and value else 400), text
    assert response.content_type == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert text.rstrip("\n").isprintable()
    assert f"parameter {name}" in text
    assert "Traceback" not in text
    assert len(text) < 300


@pytest.mark.parametrize("route", GOOD)
def test_unknown_and_missing_parameters(route: str, server: Server) -> None:
    assert server.get(route, **GOOD[route], colour="red").status_code == 400
    for name in {"run", "tag", "kind", "level", "tile", "step"} & set(GOOD[route]):
        rest = {key: value for key, value in GOOD[route].items() if key != name}
        response = server.get(route, **rest)
        assert response.status_code == 400
        assert f"parameter {name}: missing" in response.get_data(as_text=True)


def test_raw_bytes_in_a_query(server: Server) -> None:
    response = server.client.get("/data/plugin/nanwatch/report?run=%ff%fe&%00=1")
    assert response.status_code == 400
    assert server.client.get("/data/plugin/nanwatch/report?run=%ff%fe").status_code == 404


@pytest.mark.parametrize("route", [*GOOD, "/static/index.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get(route: str, method: str, server: Server) -> None:
    response = server.get(route, method, **GOOD.get(route, {}))
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("tag", "stat", "says"),
    [
        ("loss/loss", "norm", "norm is not known of kind loss; allowed are value"),
        ("weight/out/kernel", "value", "value is not known of kind weight; allowed are norm, max_abs"),
        ("gradient/out/kernel", "update_ratio", "allowed are tags of kind weight and update"),
    ],
)
def test_statistics_that_a_kind_has_not(tag: str, stat: str, says: str, server: Server) -> None:
    response = server.get("/series", run="bad", tag=tag, stat=stat)
    assert response.status_code == 400
    assert says in response.get_data(as_text=True)


def test_an_attempt_that_there_is_not(server: Server) -> None:
    for route in ("/tile", "/series", "/cell"):
        response = server.get(route, **{**GOOD[route], "attempt": "7"})
        assert response.status_code == 404
        assert "has no attempt 7" in response.get_data(as_text=True)


@pytest.mark.parametrize("route", ["/tile", "/series"])
def test_unchanged_content_is_a_304(route: str, server: Server) -> None:
    first = server.get(route, **GOOD[route])
    again = server.get(route, headers={"If-None-Match": first.headers["ETag"]}, **GOOD[route])
    assert (again.status_code, again.data) == (304, b"")
    assert again.headers["Content-Type"] == "application/octet-stream"  # or TensorBoard warns at every request
    assert again.headers["X-Content-Type-Options"] == "nosniff"
    assert again.headers["ETag"] == first.headers["ETag"]
    other = server.get(route, headers={"If-None-Match": '"other"'}, **GOOD[route])
    assert other.status_code == 200


def test_the_security_validator_of_tensorboard_is_content(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    from tensorboard.backend.security_validator import SecurityValidatorMiddleware
    from werkzeug.test import Client

    client = Client(SecurityValidatorMiddleware(server._dispatch))
    etag = server.get("/tile", **GOOD["/tile"]).headers["ETag"]
    for route, args in GOOD.items():
        client.get(f"/data/plugin/nanwatch{route}", query_string=args, headers={"If-None-Match": etag})
    client.get("/data/plugin/nanwatch/report")
    client.get("/data/plugin/nanwatch/static/nothing.js")
    assert caplog.text == ""


def test_a_failure_is_a_503_without_a_traceback(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("tb_nanwatch.plugin.payload.report", fail)
    response = server.get("/report", run="bad")
    assert response.status_code == 503
    assert "secret" not in response.get_data(as_text=True)
    assert "Traceback" not in response.get_data(as_text=True)


def test_hostile_names_travel_unchanged(tmp_path: Path) -> None:
    name = "<script>\x1b[31m\u202e\n"
    infos = runs.network([("weight", name, name, name, (2,)), ("loss", "loss", "", "", ())])
    runs.write(tmp_path / "<b>&x", infos=infos)
    server = Server(tmp_path)
    assert answer(server, "/runs")["runs"][0]["run"] == "<b>&x"
    (row,) = answer(server, "/tensors", run="<b>&x")["kinds"]["weight"]
    assert row["tag"] == f"weight/{name}"
    assert server.get("/series", run="<b>&x", tag=row["tag"]).status_code == 200
    assert dumps(row).isascii()


# ---------------------------------------------------------------- static files


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bundle" / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.js").write_text("export const render = () => {};")
    (folder / "assets" / "a-1f.css").write_text("a{}")
    (folder / "page.html").write_text("<script>1</script>")
    (folder.parent / "secret.js").write_text("secret")
    (folder / "link.js").symlink_to(folder.parent / "secret.js")
    monkeypatch.setattr(static, "FOLDER", folder)
    return folder


def test_static_files(server: Server, bundle: Path) -> None:
    index = server.get("/static/index.js")
    assert (index.status_code, index.content_type) == (200, "text/javascript; charset=utf-8")
    assert index.headers["Cache-Control"] == "no-cache, must-revalidate"
    assert server.get("/static/index.js", headers={"If-None-Match": index.headers["ETag"]}).status_code == 304
    css = server.get("/static/assets/a-1f.css")
    assert (css.content_type, css.headers["Cache-Control"]) == ("text/css; charset=utf-8", "private, max-age=31536000")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "none.js",
        "../secret.js",
        "assets/../../secret.js",
        "%2e%2e/secret.js",
        "..%2fsecret.js",
        "..%5csecret.js",
        "/etc/passwd",
        "link.js",
        "assets",
        "page.html",
        "index.js%00",
        "a" * 5000 + ".js",
    ],
)
def test_nothing_beside_the_bundle(name: str, server: Server, bundle: Path) -> None:
    response = server.client.get(f"/data/plugin/nanwatch/static/{name}")
    assert response.status_code == 404
    assert "secret" not in response.get_data(as_text=True).replace("secret.js", "")
