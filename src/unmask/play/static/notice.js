// Messages at the top of the page: errors with a retry, and confirmations.

import { Failure } from "./api.js";
import { el } from "./dom.js";

const CALM = 6000; // milliseconds that a confirmation stays
const root = () => document.getElementById("notice");
let leaving = 0;

/** Shows an error; `again` is the action of the retry button, if a retry can help. */
export function complain(error, again = null) {
  if (error.name === "AbortError") return;
  if (error instanceof Failure) return say(error.message, error.passing ? again : null);
  console.error(error);
  say(`Error of this page: ${error.message}; reload it.`);
}

export function say(message, again = null, calm = false) {
  const box = root();
  box.classList.toggle("calm", calm);
  box.replaceChildren(
    el("p", {}, message),
    ...(again ? [el("button", { onclick: () => { hush(); again(); } }, "Try again")] : []),
    el("button", { class: "quiet", onclick: hush, "aria-label": "Close this message" }, "Close"),
  );
  box.hidden = false;
  clearTimeout(leaving);
  if (calm) leaving = setTimeout(hush, CALM);
}

export function hush() {
  root().hidden = true;
  root().replaceChildren();
}
