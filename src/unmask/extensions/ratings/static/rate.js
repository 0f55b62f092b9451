// The rating page: shows two texts, and sends one of the keys 1, 2, 0 or a click as a vote.

import { send } from "./api.js";
import { announce, el } from "./dom.js";
import { hideNotice, showError } from "./notice.js";

const get = (id) => document.getElementById(id);
const parts = ["start", "comparison", "end"];
let rater = "";
let current = null; // the displayed comparison
let since = 0; // the time of its display
let busy = false; // a vote is on its way

function show(name) {
  for (const part of parts) get(part).hidden = part !== name;
}

/** The text as nodes; the part that equals the prompt is muted. */
function words(text, prompt) {
  if (!prompt || !text.startsWith(prompt)) return [text];
  return [el("span", { class: "given" }, prompt), text.slice(prompt.length)];
}

function display({ done, total, next }) {
  get("count").textContent = `${done} of ${total}`;
  get("progress").hidden = false;
  get("progress").value = done / total;
  current = next;
  if (!next) {
    show("end");
    announce("Done. All comparisons have your answer.");
    return;
  }
  const given = next.prompt && next.left.startsWith(next.prompt) && next.right.startsWith(next.prompt);
  get("prompt").textContent = next.prompt && !given ? `Beginning: ${next.prompt}` : "";
  get("left").replaceChildren(...words(next.left, next.prompt));
  get("right").replaceChildren(...words(next.right, next.prompt));
  show("comparison");
  scrollTo(0, 0);
  get("left").focus({ preventScroll: true });
  since = performance.now();
  announce(`Comparison ${done + 1} of ${total}`);
}

async function request(path, body) {
  if (busy) return;
  busy = true;
  try {
    const response = await send(`/rate/${path}`, body);
    display(await response.json());
    hideNotice();
  } catch (error) {
    showError(error, () => request(path, body));
  } finally {
    busy = false;
  }
}

function vote(choice) {
  if (!current) return;
  const seconds = (performance.now() - since) / 1000;
  request("vote", { rater, comparison: current.id, choice, seconds });
}

function begin(name) {
  rater = name.trim();
  if (!rater) return;
  try {
    localStorage.rater = rater;
  } catch {
    // the name lasts until the page is closed
  }
  request("next", { rater });
}

function storedName() {
  try {
    return localStorage.rater ?? "";
  } catch {
    return "";
  }
}

get("start").addEventListener("submit", (event) => {
  event.preventDefault();
  begin(get("rater").value);
});
get("another").addEventListener("click", () => {
  get("rater").value = "";
  get("count").textContent = "";
  get("progress").hidden = true;
  show("start");
  get("rater").focus();
});
for (const button of document.querySelectorAll("[data-choice]"))
  button.addEventListener("click", () => vote(Number(button.dataset.choice)));
addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || get("comparison").hidden) return;
  if (["0", "1", "2"].includes(event.key)) vote(Number(event.key));
});

show("start");
get("rater").value = storedName();
get("rater").focus();
document.documentElement.dataset.ready = "yes";
