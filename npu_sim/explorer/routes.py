"""What the server answers to which address."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from io import BufferedIOBase
from types import MappingProxyType
from typing import Any

from npu_sim.cores import load_profile
from npu_sim.explorer.answers import failure, plan_answer, refusal, work_answer
from npu_sim.explorer.computations import Task
from npu_sim.explorer.downloads import plan_json, report_html, trace_json
from npu_sim.explorer.dropped import PRODUCT, kind_of, without_folder
from npu_sim.explorer.jobs import MOST_WAITING
from npu_sim.explorer.nearest import nearest_answer
from npu_sim.explorer.state import State, catalog
from npu_sim.explorer.texts import LANGUAGES, page_texts
from npu_sim.explorer.workbench import Workbench
from npu_sim.files.schemas import schema
from npu_sim.language import language, translated
from npu_sim.show.reports.html import DRAWING_SCRIPTS
from npu_sim.show.reports.picture_texts import picture_texts
from npu_sim.status import NpuSimError

SCRIPTS = ("main", "elements", "texts", "address", "fields", "panes", "jobs", "files", "sharing")
"""Modules of the page."""
FILES = MappingProxyType(
    {
        "/": ("npu_sim.explorer", "page/index.html", "text/html"),
        **{
            f"/{name}.js": ("npu_sim.explorer", f"page/{name}.js", "text/javascript")
            for name in SCRIPTS
        },
        "/explore.css": ("npu_sim.explorer", "page/explore.css", "text/css"),
        **{
            f"/{name}": ("npu_sim.show.reports", f"assets/{name}", "text/javascript")
            for name in DRAWING_SCRIPTS
        },
        "/report.css": ("npu_sim.show.reports", "assets/report.css", "text/css"),
    }
)
TOKEN_PLACE = b"{{token}}"
"""Where the page has the token: a page of another origin cannot read it."""
FILE_NAME = "file.name"
"""Name of a dropped file in the query of its address; no operator has an argument with a dot."""


@dataclass(frozen=True)
class Reply:
    """What is sent: for a download the name of the file as well."""

    content: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK
    file_name: str = ""


def refused(status: HTTPStatus, why: str) -> Reply:
    """Return a sentence with a status of its own."""
    return Reply(translated(why).encode(), "text/plain; charset=utf-8", status)


def json_reply(content: Mapping[str, Any]) -> Reply:
    """Return an answer of the page's own form."""
    text = json.dumps({"schema": schema("explorer"), **content}, ensure_ascii=False)
    return Reply(text.encode("utf-8"), "application/json; charset=utf-8")


def answered(answer: Callable[..., Reply], *arguments: Any) -> Reply:
    """Return an answer, or that it ended in a bug: without any, the page would say that nobody is there."""
    try:
        return answer(*arguments)
    except (ConnectionError, TimeoutError):  # of the client
        raise
    except Exception as error:
        return refused(HTTPStatus.INTERNAL_SERVER_ERROR, failure(error)["text"])


Answer = Callable[[Workbench, State], Reply]


def _catalog(bench: Workbench, state: State) -> Reply:
    chosen = language()
    return json_reply(
        {
            **catalog(bench.products),
            "language": chosen,
            "languages": dict(LANGUAGES),
            "texts": page_texts(chosen),
            "picture_texts": picture_texts(),
        }
    )


def _job(bench: Workbench, state: State) -> Reply:
    unknown = {"stage": "done", "answer": {"outcome": "failed", "text": translated("no such run")}}
    return json_reply(bench.jobs.report(state.get("number", "")) or unknown)


def _download(make: Callable[..., str], kind: str, file_name: str) -> Answer:
    def answer(bench: Workbench, state: State) -> Reply:
        try:
            return Reply(
                make(state, bench.products).encode("utf-8"),
                f"{kind}; charset=utf-8",
                HTTPStatus.OK,
                file_name,
            )
        except NpuSimError as error:
            return refused(HTTPStatus.CONFLICT, str(refusal(error)["text"]))

    return answer


GET_ANSWERS: Mapping[str, Answer] = MappingProxyType(
    {
        "/api/catalog": _catalog,
        "/api/plan": lambda bench, state: json_reply(plan_answer(state, bench.products)),
        "/api/nearest": lambda bench, state: json_reply(nearest_answer(state, bench.products)),
        "/api/work": lambda bench, state: json_reply(work_answer(state, bench.products)),
        "/api/run": _job,
        "/api/report": _download(report_html, "text/html", "plan.html"),
        "/api/trace": _download(trace_json, "application/json", "trace.json"),
        "/api/json": _download(plan_json, "application/json", "plan.json"),
        "/favicon.ico": lambda bench, state: Reply(b"", "image/x-icon", HTTPStatus.NO_CONTENT),
    }
)


def get_reply(bench: Workbench, path: str, state: State) -> Reply:
    """Answer a request for a file of the page, a plan, a download, or how far a computation is."""
    if path in FILES:
        package, name, kind = FILES[path]
        content = resources.files(package).joinpath(name).read_bytes()
        return Reply(content.replace(TOKEN_PLACE, bench.token.encode()), f"{kind}; charset=utf-8")
    answer = GET_ANSWERS.get(path)
    return answer(bench, state) if answer else refused(HTTPStatus.NOT_FOUND, "not found")


def run_reply(bench: Workbench, state: State) -> Reply:
    """Start a run on generated data."""
    return _started(bench, Task(state, bench.products))


def cancel_reply(bench: Workbench, state: State) -> Reply:
    """End a computation."""
    bench.jobs.cancel(state.get("number", ""))
    return json_reply({})


def file_reply(bench: Workbench, state: State, body: BufferedIOBase, length: int) -> Reply:
    """Take a dropped file: choose the product that it describes, or start to compute what it says."""
    name = state.get(FILE_NAME, "")
    try:
        kind = kind_of(name)
        path = bench.dropped.keep(name, body, length)
    except NpuSimError as error:
        return json_reply(refusal(error))
    if kind != PRODUCT:
        return _started(bench, Task(state, bench.products, kind, path))
    try:
        profile = load_profile(path)
    except NpuSimError as error:
        return json_reply(refusal(without_folder(error, path.parent)))
    bench.products = {**bench.products, name: profile}
    return json_reply({"outcome": "product", "product": name})


def _started(bench: Workbench, task: Task) -> Reply:
    number = bench.jobs.start(task)
    if number is None:
        return refused(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST_WAITING} computations wait already")
    return json_reply({"outcome": "started", "number": number})
