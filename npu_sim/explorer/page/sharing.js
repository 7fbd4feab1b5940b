// Copying to the clipboard, also where the page is not trusted with it.
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
