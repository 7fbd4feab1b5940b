// What takes longer than a key: runs on generated data, and files that were dropped. One at a time; it can be cancelled.
import { byId, make, makeReachable, sectionOf } from "./elements.js";
import { t } from "./texts.js";

export const silence = () => ({ outcome: "failed", text: t("the explorer does not answer: is npu-sim explore still running?") });
const PAUSE = 150;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
let isBusy = false;
let number = null; // of the computation that the server has begun

export const isRunning = () => isBusy;

export function post(path, body, kind = "application/json") {
  const headers = { "Content-Type": kind, "X-Npu-Sim-Token": document.querySelector("meta[name=token]").content };
  return fetch(path, { method: "POST", headers, body });
}

// Return what the server answered: a refusal has a status of its own, and is a sentence.
export const read = async (reply) => (reply.ok ? reply.json() : { outcome: "failed", text: await reply.text() });

// Start what `send` asks the server for and follow it to its end; return its answer.
export async function follow(title, send) {
  isBusy = true;
  open(title);
  document.body.dataset.job = "running";
  let answer = null;
  try {
    const started = await read(await send());
    number = started.number ?? null;
    answer = number === null ? started : await end();
  } catch {
    answer = silence();
  }
  isBusy = false;
  number = null;
  byId("progress").hidden = byId("cancel").hidden = true;
  if (answer.outcome !== "ran" && answer.outcome !== "read") byId("stage").textContent = ""; // the text of the answer says it
  show(answer);
  document.body.dataset.job = "ended";
  return answer;
}

function open(title) {
  byId("job").hidden = false;
  byId("job-title").textContent = title;
  byId("job-result").replaceChildren();
  byId("stage").textContent = t("sending");
  byId("progress").removeAttribute("value");
  byId("progress").hidden = byId("cancel").hidden = false;
}

async function end() {
  for (;;) {
    const job = await (await fetch(`api/run?number=${number}`)).json();
    const seconds = t("{seconds} s", { seconds: (job.elapsed || 0).toFixed(1) });
    const known = typeof job.share === "number";
    if (known) byId("progress").value = job.share;
    else byId("progress").removeAttribute("value");
    byId("stage").textContent = `${t(job.stage)}${known ? `, ${Math.round(100 * job.share)} %` : ""}, ${seconds}`;
    if (job.stage === "done") return job.answer;
    await pause(PAUSE);
  }
}

export async function cancel() {
  if (number !== null) await post("api/cancel", JSON.stringify({ number }));
}

function show(answer) {
  const target = byId("job-result");
  if (answer.outcome === "ran") {
    target.innerHTML = answer.lines + answer.pictures.join(""); // of this server, which escapes every text in it
    for (const part of target.querySelectorAll(".scroll")) makeReachable(part, byId("job-title").textContent);
  } else if (answer.outcome === "read") {
    target.replaceChildren(make("p", { className: answer.good ? "good" : "bad", textContent: answer.headline }), ...answer.sections.map((section) => sectionOf(section)));
  } else if (answer.outcome === "product") {
    byId("job").hidden = true;
  } else {
    target.replaceChildren(make("pre", { className: answer.outcome === "cancelled" ? "hint" : "bad", textContent: t(answer.text) }));
  }
}
