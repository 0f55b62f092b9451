// Messages at the top of the page: errors with a retry, and confirmations.

import { Failure } from "./api.js";
import { el } from "./dom.js";

const CONFIRMATION = 6000; // milliseconds that a confirmation stays
const root = () => document.getElementById("notice");
let timer = 0;

/** Shows an error; `again` is the action of the retry button, if a retry can help. */
export function showError(error, again = null) {
  if (error.name === "AbortError") return;
  if (error instanceof Failure) return showNotice(error.message, error.retryable ? again : null);
  console.error(error);
  showNotice(`Error of this page: ${error.message}; reload it.`);
}

export function showNotice(message, again = null, calm = false) {
  const box = root();
  box.classList.toggle("calm", calm);
  box.replaceChildren(
    el("p", {}, message),
    ...(again ? [el("button", { onclick: () => { hideNotice(); again(); } }, "Try again")] : []),
    el("button", { class: "quiet", onclick: hideNotice, "aria-label": "Close this message" }, "Close"),
  );
  box.hidden = false;
  clearTimeout(timer);
  if (calm) timer = setTimeout(hideNotice, CONFIRMATION);
}

export function hideNotice() {
  root().hidden = true;
  root().replaceChildren();
}
