import http.client
import json
import re
import shlex
import socket
import threading
import time
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.explorer import Explorer, routes, server
from npu_sim.explorer.computations import Task, require_runnable
from npu_sim.explorer.jobs import KEPT_JOBS, MOST_WAITING, WAITING, Jobs
from npu_sim.files.reading import DROPPED_BYTES
from npu_sim.registry import OPERATOR_NAMES, load_operator
from tests.cli import runner

STATE = {
    "operator": "embedding_dense_backward",
    "product": "atlas_a2",
    "rows": "65536",
    "dim": "512",
    "num_weights": "32000",
}


@pytest.fixture
def ask(explorer):
    def ask(path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(
            "127.0.0.1", explorer.server.server_address[1], timeout=60
        )
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply, content

    return ask


@pytest.fixture
def own(ask):
    """Headers of the page itself, with the token that stands in it."""
    token = re.search(rb'name="token" content="([^"]+)"', ask("/")[1]).group(1).decode()
    return {"Content-Type": "application/json", "X-Npu-Sim-Token": token}


@pytest.fixture
def planned(ask):
    return lambda form="plan", **state: json.loads(
        ask(f"/api/{form}?" + urlencode(STATE | state))[1]
    )


def test_it_listens_on_the_loopback_address_only(explorer):
    assert explorer.server.server_address[0] == "127.0.0.1"


def test_a_state_gives_the_plan_of_the_python_call(planned):
    call = npu_sim.plan(
        "embedding_dense_backward", grad="65536x512:fp32", indices="65536:int32", num_weights=32000
    )
    answer = planned()
    assert planned("json")["plan"] == json.loads(json.dumps(call.as_dict()))
    assert answer["headline"] == "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    assert {section["title"] for section in answer["sections"]} >= {
        "Cores",
        "On-chip memory of one core",
        "Workspace in global memory",
    }


def test_switches_socs_and_tensors_as_text_reach_the_plan(planned):
    plan = planned(
        "json",
        soc="Ascend910B4",
        deterministic="true",
        scale_grad_by_freq="true",
        grad="64x1024x600:bf16:strided",
    )["plan"]
    assert (plan["soc"], plan["deterministic"], plan["tiling_key"]) == ("Ascend910B4", True, 11)
    assert plan["arguments"]["grad"] == "64x1024x600:bf16:strided"


def test_changes_say_what_they_lead_to(planned):
    changes = [(one["argument"], one["value"]) for one in planned("work")["changes"]]
    assert {("dim", 513), ("num_weights", 16777217), ("deterministic", True)} == set(changes)
    assert len(changes) == len(set(changes))
    for one in planned("work")["changes"]:
        changed = planned("json", **{one["argument"]: str(one["value"])})
        assert changed["plan"]["path"] == one["path"] != planned("json")["plan"]["path"]


@pytest.mark.parametrize(
    ("state", "words", "code"),
    [
        ({"product": "atlas_inference"}, ("--product", "atlas_inference"), 2),
        ({"grad": "65536x512"}, ("--grad", "65536x512"), 64),
        ({"indices": "5:int32"}, ("--indices", "5:int32"), 2),
        ({"soc": "Ascend910B9"}, ("--product", "atlas_a2", "--soc", "Ascend910B9"), 64),
        ({"limits": "none"}, ("--limits", "none"), 64),
        ({"padding_idx": "99999999999999999999"}, ("--padding-idx", "99999999999999999999"), 2),
    ],
)
def test_a_refusal_is_the_one_of_the_command_line(planned, capsys, monkeypatch, state, words, code):
    monkeypatch.delenv("COLUMNS", raising=False)
    given = {
        "--grad": "65536x512:fp32",
        "--indices": "65536:int32",
        "--num-weights": "32000",
    } | dict(zip(words[::2], words[1::2], strict=True))
    refused = runner.npu_sim(
        capsys,
        monkeypatch,
        "plan",
        "embedding_dense_backward",
        *(word for pair in given.items() for word in pair),
    )
    assert refused.code == code
    answer = planned(**state)
    assert answer["outcome"] == {2: "refused", 64: "usage"}[code]
    assert answer["text"].strip() == refused.err.strip().removeprefix("npu-sim: ")


@pytest.mark.parametrize(
    "state",
    [
        {"dim": "x"},
        {"rows": "-3"},
        {"grad_dtype": "fp33"},
        {"deterministic": "maybe"},
        {"operator": "none"},
        {"product": "b"},
    ],
)
def test_what_is_no_value_is_a_mistake_with_what_would_be_right(planned, state):
    answer = planned(**state)
    assert answer["outcome"] == "usage"
    assert answer["error"]["hint"]


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
def test_every_operator_opens_with_a_plan_that_its_command_repeats(
    ask, capsys, monkeypatch, operator
):
    entry = next(
        one for one in json.loads(ask("/api/catalog")[1])["operators"] if one["name"] == operator
    )
    state = {one["name"]: one["default"] for one in (*entry["axes"], *entry["attributes"])}
    query = urlencode({**state, "operator": operator, "product": "atlas_a2"})
    answer, work, kept = (
        json.loads(ask(f"/api/{form}?{query}")[1]) for form in ("plan", "work", "json")
    )
    assert answer["outcome"] == "runs", answer
    assert work["time"]["bound_us"] == kept["timeline"]["bound_us"] > 0
    assert work["steps"]["phases"]
    done = runner.npu_sim(capsys, monkeypatch, *shlex.split(answer["cli"])[1:], "--json")
    assert done.data["plan"] == kept["plan"]


@pytest.mark.parametrize(
    "headers",
    [{"Host": "example.org"}, {"Host": "example.org:80"}, {"Origin": "http://example.org"}],
)
def test_pages_of_other_origins_are_turned_away(ask, headers):
    assert ask("/api/catalog", **headers)[0].status == 403
    assert (
        ask("/api/run", "POST", "{}", **{"Content-Type": "application/json"}, **headers)[0].status
        == 403
    )


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/../status.py", "GET", {}, 404),
        ("/page/main.js", "GET", {}, 404),
        ("/api/run", "POST", {"Content-Type": "text/plain"}, 404),
        ("/api/plan", "POST", {}, 404),
        ("/api/file?file.name=a.yaml", "POST", {"Content-Type": "application/json"}, 404),
        ("/api/run", "POST", {"Content-Type": "application/octet-stream"}, 404),
    ],
)
def test_nothing_else_is_served(ask, own, path, method, headers, status):
    assert (
        ask(path, method, "{}" if method == "POST" else None, **{**own, **headers})[0].status
        == status
    )


@pytest.mark.parametrize("body", ["", "[1]", "{"])
def test_a_malformed_run_is_refused(ask, own, body):
    assert ask("/api/run", "POST", body, **own)[0].status == 400


@pytest.mark.parametrize(
    ("length", "status"),
    [("-1", 400), ("abc", 400), ("1_0", 400), ("9" * 30, 400), ("65537", 413), (None, 400)],
    ids=str,
)
def test_a_length_that_is_none_is_refused_and_nothing_read(explorer, own, length, status):
    lines = [
        f"{name}: {value}"
        for name, value in {**own, "Content-Length": length}.items()
        if value is not None
    ]
    with socket.create_connection(
        ("127.0.0.1", explorer.server.server_address[1]), timeout=20
    ) as client:
        host = f"Host: 127.0.0.1:{explorer.server.server_address[1]}"
        client.sendall("\r\n".join(["POST /api/run HTTP/1.1", host, *lines, "", ""]).encode())
        reply = client.makefile("rb").read()
    assert int(reply.split()[1]) == status
    assert b"Connection: close" in reply


def test_a_body_nested_too_deeply_is_refused(ask, own):
    assert ask("/api/run", "POST", "[" * 60000, **own)[0].status == 400


@pytest.mark.parametrize("path", ["/api/run", "/api/cancel", "/api/file?file.name=a.yaml"])
@pytest.mark.parametrize("token", [None, "", "x", "\xe9"])
def test_what_is_sent_without_the_token_of_the_page_is_refused(ask, own, token, path):
    headers = {
        name: value
        for name, value in {**own, "X-Npu-Sim-Token": token}.items()
        if value is not None
    }
    assert ask(path, "POST", "{}", **headers)[0].status == 403


BYTES = {"Content-Type": "application/octet-stream"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        ".yaml",
        "../a.yaml",
        "a/b.yaml",
        "a\\b.yaml",
        "a.sh",
        "a\0.yaml",
        "a\n.yaml",
        "x" * 200 + ".yaml",
    ],
)
def test_a_file_with_a_name_that_is_none_is_not_kept(ask, own, explorer, name):
    reply, content = ask(
        "/api/file?" + urlencode({"file.name": name}), "POST", b"a: 1", **{**own, **BYTES}
    )
    assert reply.status == 200
    assert "not a file that is read here" in json.loads(content)["text"]
    assert explorer.dropped._folder is None


def test_a_file_is_no_longer_than_is_read(ask, own, explorer):
    with socket.create_connection(
        ("127.0.0.1", explorer.server.server_address[1]), timeout=20
    ) as client:
        headers = {
            "Host": f"127.0.0.1:{explorer.server.server_address[1]}",
            **own,
            **BYTES,
            "Content-Length": str(DROPPED_BYTES + 1),
        }
        lines = [f"{name}: {value}" for name, value in headers.items()]
        client.sendall(
            "\r\n".join(["POST /api/file?file.name=a.csv HTTP/1.1", *lines, "", ""]).encode()
        )
        assert client.makefile("rb").read().split()[1] == b"413"


def test_another_server_on_this_machine_is_another_origin(ask, own):
    assert ask("/api/run", "POST", "{}", **own, Origin="http://127.0.0.1:1")[0].status == 403
    assert ask("/api/catalog", Host="127.0.0.1:1")[0].status == 403


def test_many_fields_are_refused(ask):
    assert ask("/api/plan?" + "&".join(f"x{number}=1" for number in range(1000)))[0].status == 400


def test_a_bug_is_said_to_the_page_and_where_it_is_to_the_terminal(ask, monkeypatch, capsys):
    monkeypatch.setattr(routes, "plan_answer", lambda state, products: 1 // 0)
    reply, content = ask("/api/plan?" + urlencode(STATE))
    assert (reply.status, content) == (
        500,
        b"internal error: ZeroDivisionError: integer division or modulo by zero",
    )
    assert "Traceback" in capsys.readouterr().err


def test_only_computations_that_are_over_are_forgotten():
    jobs, task = Jobs(), Task(STATE, {})
    with jobs._one_at_a_time:
        numbers = [jobs.start(task) for _ in range(2)]
        for _ in range(2 * KEPT_JOBS):
            numbers.append(jobs.start(task))
            jobs.cancel(numbers[-1])
        reports = [jobs.report(number) for number in numbers]
        for number in numbers:
            jobs.cancel(number)
    assert [one and one["stage"] for one in reports[:3]] == [WAITING, WAITING, None]


def test_runs_that_wait_are_few_and_so_are_threads(explorer, ask, own):
    before = threading.active_count()
    replies = []
    with explorer.jobs._one_at_a_time:
        for _ in range(40):
            replies.append(
                ask(
                    "/api/run",
                    "POST",
                    json.dumps(STATE | {"rows": "20", "dim": "4", "num_weights": "3"}),
                    **own,
                )[0].status
            )
            assert threading.active_count() - before < 2 * MOST_WAITING
    assert replies == [200] * MOST_WAITING + [429] * (40 - MOST_WAITING)


def test_connections_that_say_nothing_are_few_and_end(monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(server._Handler, "timeout", 0.2)
    explorer = Explorer({"atlas_a2": load_profile("atlas_a2")})
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    address = explorer.server.server_address
    try:
        with ExitStack() as open_ones:
            silent = [
                open_ones.enter_context(socket.create_connection(address, timeout=20))
                for _ in range(5)
            ]
            assert [client.recv(1) for client in silent] == [b""] * 5
    finally:
        explorer.server.shutdown()
        explorer.server.server_close()


@pytest.mark.parametrize(
    "beginning",
    [
        "",
        "GET / HTTP/1.1\r\nX: ",
        "POST /api/run HTTP/1.1\r\nHost: localhost:{port}\r\nX-Npu-Sim-Token: {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n",
    ],
    ids=["a line", "a header", "a body"],
)
def test_a_client_that_sends_a_little_now_and_then_is_not_waited_for(monkeypatch, beginning):
    monkeypatch.setattr(server._Handler, "timeout", 0.5)
    explorer = Explorer({"atlas_a2": load_profile("atlas_a2")})
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    address = explorer.server.server_address
    try:
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(beginning.format(port=address[1], token=explorer.token).encode())
            with pytest.raises(OSError, match=r"Broken pipe|reset"):
                _trickle(client)
    finally:
        explorer.server.shutdown()
        explorer.server.server_close()


def _trickle(client):
    for _ in range(200):
        client.sendall(b"x")
        time.sleep(0.05)


def test_a_server_that_others_reach_answers_only_who_has_its_token():
    explorer = Explorer({"atlas_a2": load_profile("atlas_a2")}, host="0.0.0.0")
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    name = f"127.0.0.1:{explorer.server.server_address[1]}"
    try:
        assert f"?token={explorer.token}" in explorer.address
        statuses = []
        for path, headers in (
            ("/", {}),
            ("/?token=x", {}),
            (f"/?token={explorer.token}", {}),
            ("/api/catalog", {"Cookie": f"a=b; npu_sim_token={explorer.token}"}),
            ("/api/catalog", {"Cookie": f"xnpu_sim_token={explorer.token}"}),
            (
                "/api/catalog",
                {"Cookie": f"npu_sim_token={explorer.token}", "Origin": "http://example.org"},
            ),
        ):
            connection = http.client.HTTPConnection(name, timeout=20)
            connection.request("GET", path, headers=headers)
            statuses.append(connection.getresponse().status)
            connection.close()
        assert statuses == [403, 403, 200, 200, 403, 403]
    finally:
        explorer.server.shutdown()
        explorer.server.server_close()


def test_the_page_may_load_only_from_its_server(ask):
    reply, content = ask("/")
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert b"http" not in content


def finished(ask, own, state):
    _, content = ask("/api/run", "POST", json.dumps(STATE | state), **own)
    number = json.loads(content)["number"]
    for _ in range(600):
        job = json.loads(ask(f"/api/run?number={number}")[1])
        if job["stage"] == "done":
            return job["answer"]
        time.sleep(0.1)
    raise AssertionError(f"run {number} does not end: {job}")


def test_a_run_on_generated_data_ends_with_its_order_strip(ask, own):
    answer = finished(ask, own, {"rows": "2000", "dim": "16", "num_weights": "300"})
    assert answer["outcome"] == "ran", answer
    assert answer["outputs"] == {"grad_weight": {"shape": [300, 16], "dtype": "float32"}}
    strip = answer["order_strips"][0]
    assert (
        sum(one["order_dependent"] for one in strip["bins"])
        == answer["order_dependent"]["grad_weight"]["order_dependent"]
        > 0
    )


def test_a_refused_run_says_why(ask, own):
    assert "161002" in finished(ask, own, {"product": "atlas_inference"})["text"]


def test_a_refused_run_says_why_in_the_language_of_the_page(ask, own):
    assert "不支持" in finished(ask, own, {"product": "atlas_inference", "lang": "zh"})["text"]


def test_a_computation_that_is_cancelled_ends_and_the_next_one_begins(ask, own, explorer):
    numbers = [
        json.loads(ask("/api/run", "POST", json.dumps(STATE | {"rows": "256K"}), **own)[1])[
            "number"
        ]
        for _ in range(2)
    ]
    for number in reversed(numbers):
        ask("/api/cancel", "POST", json.dumps({"number": number}), **own)
        assert explorer.jobs.report(number)["answer"]["outcome"] == "cancelled"
    assert finished(ask, own, {"rows": "20", "dim": "4", "num_weights": "3"})["outcome"] == "ran"


def test_an_unknown_run_is_no_error(ask):
    assert json.loads(ask("/api/run?number=99")[1])["answer"]["outcome"] == "failed"


def test_tensors_too_large_for_a_page_are_refused_before_they_are_made():
    arguments = load_operator("embedding_dense_backward").build(
        {"grad": "4000000x512:fp32", "indices": "4000000:int32", "num_weights": 3}
    )
    with pytest.raises(npu_sim.UsageError, match="more than the"):
        require_runnable(arguments)
