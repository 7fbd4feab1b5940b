// Files dropped on the page, or opened from it.
import { wholeQuery } from "./address.js";
import { byId } from "./elements.js";
import { follow, isRunning, post } from "./jobs.js";

// `chosen` hears of a product that a file described.
export function acceptFiles(chosen) {
  const take = async (file) => {
    if (!file || isRunning()) return;
    const query = wholeQuery();
    query.set("file.name", file.name);
    const answer = await follow(file.name, () => post(`api/file?${query}`, file, "application/octet-stream"));
    if (answer.outcome === "product") await chosen(answer.product);
  };
  let inside = 0; // elements of the page that the pointer entered and has not left
  const cover = (change) => {
    inside = change === 0 ? 0 : inside + change;
    byId("drop").hidden = inside <= 0;
  };
  const hasFile = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  document.addEventListener("dragenter", (event) => hasFile(event) && cover(1));
  document.addEventListener("dragleave", (event) => hasFile(event) && cover(-1));
  document.addEventListener("dragover", (event) => hasFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    cover(0);
    take(event.dataTransfer.files[0]);
  });
  byId("open-file").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => {
    take(byId("file").files[0]);
    byId("file").value = "";
  });
}
