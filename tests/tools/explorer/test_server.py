import json
import re
import shlex
import socket
import sys
import threading
import time
from contextlib import ExitStack
from urllib.parse import urlencode

import httpx
import pytest
from starlette.testclient import TestClient

import npu_sim
from npu_sim.cores import load_profile, shipped_products
from npu_sim.files.reading import DROPPED_BYTES
from npu_sim.framework.inference import arguments_of
from npu_sim.language import Text, translated, using_language
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import NotModelledError, UsageError
from npu_sim.tools.explorer import application
from npu_sim.tools.explorer.application import Explorer, serving
from npu_sim.tools.explorer.jobs import (
    MOST_WAITING,
    STORED_JOBS,
    WAITING,
    Jobs,
    Task,
    require_runnable,
    without_folder,
)
from tests.cases import every
from tests.cli import runner

STATE = {
    "operator": "embedding_dense_backward",
    "product": "atlas_a2",
    "rows": "65536",
    "dim": "512",
    "num_weights": "32000",
}


@pytest.fixture(scope="module")
def explorer():
    """An explorer without a server: tests call its application directly."""
    explorer = Explorer({name: load_profile(name) for name in shipped_products()})
    yield explorer
    explorer.close()


def client_of(explorer, **options):
    return TestClient(
        application.application(explorer),
        base_url=f"http://127.0.0.1:{explorer.access.port}",
        raise_server_exceptions=False,
        **options,
    )


@pytest.fixture(scope="module")
def send(explorer):
    with client_of(explorer) as client:
        client.get(explorer.access.address)  # stores the token in a cookie

        def send(path, method="GET", body=None, **headers):
            reply = client.request(method, path, content=body, headers=headers)
            return reply, reply.content

        yield send


@pytest.fixture(scope="module")
def page_headers(send):
    """Request headers of the page, with its token."""
    token = re.search(rb'name="token" content="([^"]+)"', send("/")[1]).group(1).decode()
    return {"Content-Type": "application/json", "X-Npu-Sim-Token": token}


@pytest.fixture(scope="module")
def planned(send):
    return lambda form="plan", **state: json.loads(
        send(f"/api/{form}?" + urlencode(STATE | state))[1]
    )


def test_the_server_listens_on_the_loopback_address_only(explorer):
    assert explorer.socket.getsockname()[0] == "127.0.0.1"


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


def test_switches_socs_and_tensor_texts_reach_the_plan(planned):
    plan = planned(
        "json",
        soc="Ascend910B4",
        deterministic="true",
        scale_grad_by_freq="true",
        grad="64x1024x600:bf16:strided",
    )["plan"]
    assert (plan["soc"], plan["deterministic"], plan["tiling_key"]) == ("Ascend910B4", True, 11)
    assert plan["arguments"]["grad"] == "64x1024x600:bf16:strided"


def test_changes_state_their_outcome(planned):
    changes = [(change["argument"], change["value"]) for change in planned("work")["changes"]]
    assert {("dim", 513), ("num_weights", 16777217), ("deterministic", True)} == set(changes)
    assert len(changes) == len(set(changes))
    for change in planned("work")["changes"]:
        changed = planned("json", **{change["argument"]: str(change["value"])})
        assert changed["plan"]["path"] == change["path"] != planned("json")["plan"]["path"]


@pytest.mark.parametrize(
    ("state", "arguments", "code"),
    [
        ({"product": "atlas_inference"}, ("--product", "atlas_inference"), 2),
        ({"grad": "65536x512"}, ("--grad", "65536x512"), 64),
        ({"indices": "5:int32"}, ("--indices", "5:int32"), 2),
        ({"soc": "Ascend910B9"}, ("--product", "atlas_a2", "--soc", "Ascend910B9"), 64),
        ({"limits": "none"}, ("--limits", "none"), 64),
        ({"padding_idx": "99999999999999999999"}, ("--padding-idx", "99999999999999999999"), 2),
    ],
)
def test_a_refusal_equals_that_of_the_command_line(
    planned, capsys, monkeypatch, state, arguments, code
):
    monkeypatch.delenv("COLUMNS", raising=False)
    options = {
        "--grad": "65536x512:fp32",
        "--indices": "65536:int32",
        "--num-weights": "32000",
    } | dict(zip(arguments[::2], arguments[1::2], strict=True))
    refused = runner.npu_sim(
        capsys,
        monkeypatch,
        "plan",
        "embedding_dense_backward",
        *(word for pair in options.items() for word in pair),
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
def test_an_invalid_value_is_a_usage_error_with_a_hint(planned, state):
    answer = planned(**state)
    assert answer["outcome"] == "usage"
    assert answer["error"]["hint"]


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
def test_every_operator_opens_with_a_plan_that_its_command_repeats(
    send, capsys, monkeypatch, operator
):
    entry = next(
        entry
        for entry in json.loads(send("/api/catalog")[1])["operators"]
        if entry["name"] == operator
    )
    state = {field["name"]: field["default"] for field in (*entry["axes"], *entry["attributes"])}
    query = urlencode({**state, "operator": operator, "product": "atlas_a2"})
    answer, work, document = (
        json.loads(send(f"/api/{form}?{query}")[1]) for form in ("plan", "work", "json")
    )
    assert answer["outcome"] == "runs", answer
    assert work["time"]["bound_us"] == document["timeline"]["bound_us"] > 0
    assert work["steps"]["phases"]
    outcome = runner.npu_sim(capsys, monkeypatch, *shlex.split(answer["cli"])[1:], "--json")
    assert outcome.data["plan"] == document["plan"]


@pytest.mark.parametrize(
    "headers",
    [{"Host": "example.org"}, {"Host": "example.org:80"}, {"Origin": "http://example.org"}],
)
def test_requests_of_other_origins_are_rejected(send, headers):
    assert send("/api/catalog", **headers)[0].status_code == 403
    assert (
        send("/api/run", "POST", "{}", **{"Content-Type": "application/json"}, **headers)[
            0
        ].status_code
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
def test_other_paths_and_methods_are_rejected(send, page_headers, path, method, headers, status):
    assert (
        send(path, method, "{}" if method == "POST" else None, **{**page_headers, **headers})[
            0
        ].status_code
        == status
    )


@pytest.mark.parametrize("body", ["", "[1]", "{"])
def test_a_malformed_run_is_refused(send, page_headers, body):
    assert send("/api/run", "POST", body, **page_headers)[0].status_code == 400


@pytest.mark.parametrize(
    ("length", "status"),
    [("-1", 400), ("abc", 400), ("1_0", 400), ("9" * 30, 400), ("65537", 413), (None, 400)],
    ids=str,
)
def test_an_invalid_content_length_is_rejected_before_the_body_is_read(
    send, page_headers, length, status
):
    headers = page_headers if length is None else {**page_headers, "Content-Length": length}
    reply, _ = send("/api/run", "POST", b"", **headers)
    assert reply.status_code == status
    assert reply.headers["Connection"] == "close"


def test_a_body_nested_too_deeply_is_rejected(send, page_headers):
    assert send("/api/run", "POST", "[" * 60000, **page_headers)[0].status_code == 400


@pytest.mark.parametrize("path", ["/api/run", "/api/cancel", "/api/file?file.name=a.yaml"])
@pytest.mark.parametrize("token", [None, "", "x", b"\xe9"])
def test_requests_without_the_token_of_the_page_are_rejected(send, page_headers, token, path):
    headers = {
        name: value
        for name, value in {**page_headers, "X-Npu-Sim-Token": token}.items()
        if value is not None
    }
    assert send(path, "POST", "{}", **headers)[0].status_code == 403


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
def test_a_file_with_an_invalid_name_is_not_stored(send, page_headers, explorer, name):
    reply, content = send(
        "/api/file?" + urlencode({"file.name": name}), "POST", b"a: 1", **{**page_headers, **BYTES}
    )
    assert reply.status_code == 200
    assert "not a file that is read here" in json.loads(content)["text"]
    assert "folder" not in vars(explorer.dropped)


def test_a_file_beyond_the_size_limit_is_rejected(send, page_headers):
    headers = {**page_headers, **BYTES, "Content-Length": str(DROPPED_BYTES + 1)}
    assert send("/api/file?file.name=a.csv", "POST", b"", **headers)[0].status_code == 413


@pytest.mark.parametrize("origin", ["http://[", "null", "", "https://127.0.0.1", "x"])
def test_an_invalid_origin_is_rejected(send, origin):
    assert send("/", Origin=origin)[0].status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/catalog", "/api/report"])
@pytest.mark.parametrize(
    ("site", "status"),
    [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403), ("x", 403)],
)
def test_requests_of_other_sites_and_their_links_are_refused(send, path, site, status):
    reply, content = send(f"{path}?{urlencode(STATE)}", **{"Sec-Fetch-Site": site})
    assert reply.status_code == status
    assert (b"address bar" in content) == (status == 403)


@pytest.mark.parametrize(
    "path", ["/", "/?token=x", "/main.js", "/api/catalog", "/api/run?number=1"]
)
def test_a_program_without_the_token_is_told_to_use_the_printed_address(explorer, path):
    reply = client_of(explorer).get(path)
    assert reply.status_code == 403
    assert "open the address that npu-sim explore printed" in reply.text
    assert explorer.access.token not in reply.text


def test_the_printed_address_opens_the_page_and_leaves_no_token_in_the_address_bar(explorer):
    with client_of(explorer) as client:
        reply = client.get(explorer.access.address)
        assert (reply.status_code, reply.url.path, reply.url.query) == (200, "/", b"")
        assert [answer.status_code for answer in reply.history] == [303]
        assert client.get("/api/catalog").status_code == 200
    assert client_of(explorer).get(f"/api/catalog?token={explorer.access.token}").status_code == 200


def test_another_server_on_this_machine_is_another_origin(send, page_headers):
    assert (
        send("/api/run", "POST", "{}", **page_headers, Origin="http://127.0.0.1:1")[0].status_code
        == 403
    )
    assert send("/api/catalog", Host="127.0.0.1:1")[0].status_code == 403


def test_too_many_fields_are_rejected(send):
    assert (
        send("/api/plan?" + "&".join(f"x{number}=1" for number in range(1000)))[0].status_code
        == 400
    )


def test_an_internal_error_is_reported_to_the_page_and_its_traceback_to_the_terminal(
    send, monkeypatch, capsys
):
    monkeypatch.setattr(application, "plan_answer", lambda state, products: 1 // 0)
    reply, content = send("/api/plan?" + urlencode(STATE))
    assert (reply.status_code, content) == (
        500,
        b"internal error: ZeroDivisionError: integer division or modulo by zero",
    )
    assert "Traceback" in capsys.readouterr().err


def test_only_finished_computations_are_dropped():
    jobs, task = Jobs(), Task(STATE, {})
    with jobs._one_at_a_time:
        numbers = [jobs.start(task) for _ in range(2)]
        for _ in range(2 * STORED_JOBS):
            numbers.append(jobs.start(task))
            jobs.cancel(numbers[-1])
        reports = [jobs.report(number) for number in numbers]
        for number in numbers:
            jobs.cancel(number)
    assert [report and report["stage"] for report in reports[:3]] == [WAITING, WAITING, None]


def test_the_numbers_of_waiting_runs_and_threads_are_limited(explorer, send, page_headers):
    before = threading.active_count()
    replies = []
    with explorer.jobs._one_at_a_time:
        for _ in range(40):
            replies.append(
                send(
                    "/api/run",
                    "POST",
                    json.dumps(STATE | {"rows": "20", "dim": "4", "num_weights": "3"}),
                    **page_headers,
                )[0].status_code
            )
            assert threading.active_count() - before < 2 * MOST_WAITING
    assert replies == [200] * MOST_WAITING + [429] * (40 - MOST_WAITING)


@pytest.fixture
def served(monkeypatch):
    """An explorer with its real server and short time limits."""
    monkeypatch.setattr(application, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(application, "BODY_SECONDS", 0.5)
    with serving(Explorer({"atlas_a2": load_profile("atlas_a2")})) as explorer:
        yield explorer


def connect(explorer):
    return socket.create_connection(("127.0.0.1", explorer.access.port), timeout=20)


BEGINNINGS = {
    "nothing": "",
    "a line": "GET / HT",
    "a header": "GET / HTTP/1.1\r\nX: ",
    "a body": "POST /api/run HTTP/1.1\r\nHost: localhost:{port}\r\nX-Npu-Sim-Token: {token}\r\n"
    "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n",
    "a second request": "GET /favicon.ico?token={token} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
    "GET / HT",
}


def begin(client, beginning, explorer):
    access = explorer.access
    client.sendall(BEGINNINGS[beginning].format(port=access.port, token=access.token).encode())


@pytest.mark.parametrize("beginning", every(3, BEGINNINGS))
def test_incomplete_requests_block_no_others_and_time_out(served, beginning):
    with ExitStack() as connections:
        slow = [connections.enter_context(connect(served)) for _ in range(60)]
        for client in slow:
            begin(client, beginning, served)
        start = time.monotonic()
        with client_over_network(served) as client:
            assert client.get("/api/catalog").status_code == 200
        assert time.monotonic() - start < 10
        for client in slow:
            while client.recv(1 << 16):
                pass


@pytest.mark.parametrize("beginning", ["a header", "a body"])
def test_a_client_that_sends_slowly_times_out(served, beginning):
    with connect(served) as client:
        begin(client, beginning, served)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            _trickle(client)


def _trickle(client):
    for _ in range(200):
        client.sendall(b"x")
        time.sleep(0.05)


def client_over_network(explorer):
    access = explorer.access
    return httpx.Client(
        base_url=f"http://127.0.0.1:{access.port}", params={"token": access.token}, timeout=20
    )


@pytest.mark.parametrize("line", [b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 6"])
def test_requests_that_are_not_http_are_rejected(served, line):
    with connect(served) as client:
        client.sendall(b"POST /api/run HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
        assert client.makefile("rb").read().split()[1] == b"400"


def test_a_server_on_the_network_answers_only_clients_with_its_token():
    explorer = Explorer({"atlas_a2": load_profile("atlas_a2")}, host="0.0.0.0")
    token = explorer.access.token
    assert explorer.access.address.endswith(f"/?token={token}")
    name = explorer.access.cookie
    cookie = {"Cookie": f"{name}={token}"}
    try:
        client = client_of(explorer)
        for path, headers, status in (
            ("/", {}, 403),
            ("/?token=x", {}, 403),
            ("/api/catalog", {"Cookie": f"x{name}={token}"}, 403),
            ("/api/catalog", {**cookie, "Origin": "http://example.org"}, 403),
            ("/api/catalog", {"Cookie": f"a=b; {name}={token}"}, 200),
            (f"/?token={token}", {}, 200),
            ("/api/catalog", {}, 200),
        ):
            reply = client.get(path, headers=headers)
            assert reply.status_code == status, path
        opened = client_of(explorer).get(f"/?token={token}", follow_redirects=False)
        set_cookie = opened.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(set_cookie.split("; "))
    finally:
        explorer.close()


def test_without_the_extra_the_command_names_the_packages_to_install(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("npu_sim.tools.explorer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    refused = runner.npu_sim(capsys, monkeypatch, "explore", "--no-browser")
    assert refused.code == 64
    assert "npu_sim[explore]" in refused.err


def test_the_page_may_load_only_from_its_server(send):
    reply, content = send("/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy  # default-src does not cover it
    assert b"http" not in content


def test_a_lone_surrogate_in_a_run_is_answered(send, page_headers):
    answer = finished(send, page_headers, {"reduction": "\ud800", "operator": "\udc80"})
    assert answer["outcome"] == "usage"
    assert "'\\udc80'" in answer["text"]
    reply = application.refused(400, "a\udc80")
    assert reply.body == b"a\\udc80"


def finished(send, page_headers, state):
    _, content = send("/api/run", "POST", json.dumps(STATE | state), **page_headers)
    number = json.loads(content)["number"]
    for _ in range(600):
        job = json.loads(send(f"/api/run?number={number}")[1])
        if job["stage"] == "done":
            return job["answer"]
        time.sleep(0.1)
    raise AssertionError(f"run {number} does not end: {job}")


def test_a_run_on_generated_data_ends_with_an_order_strip(send, page_headers):
    answer = finished(send, page_headers, {"rows": "2000", "dim": "16", "num_weights": "300"})
    assert answer["outcome"] == "ran", answer
    assert answer["outputs"] == {"grad_weight": {"shape": [300, 16], "dtype": "float32"}}
    strip = answer["order_strips"][0]
    assert (
        sum(interval["order_dependent"] for interval in strip["bins"])
        == answer["order_dependent"]["grad_weight"]["order_dependent"]
        > 0
    )


def test_a_refused_run_states_the_reason(send, page_headers):
    assert "161002" in finished(send, page_headers, {"product": "atlas_inference"})["text"]


def test_a_refused_run_states_the_reason_in_the_language_of_the_page(send, page_headers):
    assert (
        "不支持"
        in finished(send, page_headers, {"product": "atlas_inference", "lang": "zh"})["text"]
    )


def test_a_cancelled_computation_ends_and_the_next_begins(send, page_headers, explorer):
    numbers = [
        json.loads(
            send("/api/run", "POST", json.dumps(STATE | {"rows": "256K"}), **page_headers)[1]
        )["number"]
        for _ in range(2)
    ]
    for number in reversed(numbers):
        send("/api/cancel", "POST", json.dumps({"number": number}), **page_headers)
        assert explorer.jobs.report(number)["answer"]["outcome"] == "cancelled"
    assert (
        finished(send, page_headers, {"rows": "20", "dim": "4", "num_weights": "3"})["outcome"]
        == "ran"
    )


def test_polling_an_unknown_run_is_not_an_error(send):
    assert json.loads(send("/api/run?number=99")[1])["answer"]["outcome"] == "failed"


def test_tensors_too_large_for_a_page_are_refused_before_allocation():
    arguments = arguments_of(
        load_operator("embedding_dense_backward"),
        {"grad": "4000000x512:fp32", "indices": "4000000:int32", "num_weights": 3},
    )
    with pytest.raises(npu_sim.UsageError, match="more than the"):
        require_runnable(arguments)


def test_the_seconds_of_a_cancelled_computation_do_not_grow():
    jobs = Jobs()
    with jobs._one_at_a_time:
        number = jobs.start(Task(STATE, {}))
        jobs.cancel(number)
        first = jobs.report(number)["elapsed"]
        assert jobs.report(number)["elapsed"] == first


def test_an_error_without_its_folder_is_still_translated(tmp_path):
    error = UsageError("file", Text("{path} is a folder", path=tmp_path / "a.csv"), "")
    shortened = without_folder(error, tmp_path)
    assert str(shortened.message) == "a.csv is a folder"
    with using_language("zh"):
        assert "is a folder" not in translated(shortened.message)


@pytest.mark.parametrize(
    "error",
    [
        UsageError("file", "a.csv", ""),
        NotModelledError("file", "a.csv", ""),
        npu_sim.AclnnError(561002, "file", "a.csv", ""),
    ],
    ids=lambda error: error.outcome,
)
def test_an_error_without_its_folder_keeps_its_outcome(tmp_path, error):
    shortened = without_folder(error, tmp_path)
    assert (type(shortened), shortened.outcome) == (type(error), error.outcome)
    assert shortened.as_dict() == error.as_dict()
