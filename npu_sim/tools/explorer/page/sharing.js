// Copying to the clipboard, also where the page is not trusted with it, and saving the page.
import { make } from "./elements.js";
import { t } from "./texts.js";

export async function copy(button, content) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    const area = make("textarea", { value: content });
    document.body.append(area);
    area.select();
    copied = document.execCommand("copy");
    area.remove();
  }
  const before = button.dataset.text;
  button.textContent = copied ? t("copied") : t("could not copy");
  setTimeout(() => { button.textContent = t(before); }, 1200);
}

const STYLES = ["report.css", "explore.css"];
const CONTROLS = "script, link, template, form, input, .buttons, .tools, .core-choice, #drop, [hidden]";

// Save what the panes show as one HTML file that needs no server: without fields and scripts, with its styles and its link.
export async function saveSnapshot() {
  const styles = await Promise.all(STYLES.map(async (name) => (await fetch(name)).text()));
  const page = document.documentElement.cloneNode(true);
  for (const part of page.querySelectorAll(`${CONTROLS}, meta[name=token]`)) part.remove();
  for (const button of page.querySelectorAll("button")) button.replaceWith(make("span", { className: "button" }, ...button.childNodes));
  page.querySelector("head").append(make("style", { textContent: styles.join("\n") }));
  const link = make("pre", { className: "call", textContent: location.hash });
  page.querySelector("main").append(make("footer", {}, t("Simulated, not measured on a device. To open it in npu-sim explore, put this behind its address:"), link));
  const address = URL.createObjectURL(new Blob([`<!doctype html>\n${page.outerHTML}`], { type: "text/html" }));
  make("a", { href: address, download: "explorer.html" }).click();
  URL.revokeObjectURL(address);
}
