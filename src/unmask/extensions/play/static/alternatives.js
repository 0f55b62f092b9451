// The likeliest tokens at a position with their probabilities; a click on one inserts it.

import { guesses } from "./api.js";
import { debounced, el, percent, visible } from "./dom.js";

const WAIT = 280; // milliseconds of hovering before a request

export class Alternatives {
  /** `requestFor(place)` returns the request or null; a click calls `choose(place, token)`, if it is given. */
  constructor({ requestFor, choose = null, title }) {
    this.requestFor = requestFor;
    this.choose = choose;
    this.title = title;
    this.place = null;
    this.root = el("div", {
      class: "alternatives", role: "dialog", "aria-label": "Alternatives", hidden: true,
      onpointerenter: () => this.closeSoon.cancel(),
      onpointerleave: () => this.closeSoon(),
      onfocusin: () => this.closeSoon.cancel(),
      onfocusout: (event) => { if (!this.root.contains(event.relatedTarget)) this.closeSoon(); },
      onkeydown: (event) => this.#key(event),
    });
    document.body.append(this.root);
    this.openSoon = debounced(WAIT, (token, place) => this.#show(token, place));
    this.closeSoon = debounced(220, () => this.close());
  }

  /** Called when the pointer or the focus moves to a token; `place` is null if it leaves the tokens. */
  point(token, place) {
    if (place === null) {
      this.openSoon.cancel();
      this.closeSoon();
      return;
    }
    this.closeSoon.cancel();
    if (place !== this.dismissed) this.dismissed = null; // a dismissed token does not reopen at once
    if (place !== this.place && place !== this.dismissed) this.openSoon(token, place);
  }

  close() {
    this.openSoon.cancel();
    this.closeSoon.cancel();
    this.abort?.abort();
    this.place = null;
    this.root.hidden = true;
  }

  /** Closes until the pointer or the focus reaches another token. */
  #dismiss() {
    this.dismissed = this.place;
    this.close();
    return this.token;
  }

  /** Opens at once and moves the focus in. */
  async enter(token, place) {
    this.openSoon.cancel();
    await this.#show(token, place);
    this.root.querySelector("button")?.focus();
    this.token = token;
  }

  async #show(token, place) {
    const request = this.requestFor(place);
    if (!request) return this.close();
    this.abort?.abort();
    this.abort = new AbortController();
    this.place = place;
    this.token = token;
    let response;
    try {
      response = await guesses(request, this.abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.#fill(place, el("p", { class: "state" }, error.message));
      return;
    }
    if (this.place !== place) return;
    const [{ likely }] = response.guesses;
    const here = request.tokens[place];
    this.#fill(place, el("ul", {}, ...likely.map((token) => el("li", {}, this.#row(place, token, here)))));
  }

  #row(place, token, here) {
    const row = el(
      "button",
      {
        type: "button",
        class: token.id === here ? "here" : "",
        disabled: !this.choose,
        onclick: () => {
          const back = this.#dismiss();
          this.choose(place, token);
          back.focus();
        },
      },
      el("span", { class: "word" }, visible(token.text)),
      el("span", { class: "number" }, percent(token.p)),
    );
    row.style.setProperty("--p", token.p);
    return row;
  }

  #fill(place, content) {
    this.root.replaceChildren(el("h3", {}, this.title(place)), content);
    this.root.hidden = false;
    const box = this.token.getBoundingClientRect();
    const room = document.documentElement.clientWidth - this.root.offsetWidth - 12;
    const below = box.bottom + this.root.offsetHeight + 10 < innerHeight || box.top < this.root.offsetHeight + 10;
    const top = below ? box.bottom + 6 : box.top - this.root.offsetHeight - 6;
    this.root.style.left = `${Math.max(8, Math.min(box.left, room)) + scrollX}px`;
    this.root.style.top = `${top + scrollY}px`;
  }

  #key(event) {
    const rows = [...this.root.querySelectorAll("button")];
    const at = rows.indexOf(document.activeElement);
    if (event.key === "Escape") {
      this.#dismiss().focus();
    } else if (event.key === "ArrowDown") rows[(at + 1) % rows.length]?.focus();
    else if (event.key === "ArrowUp") rows.at(at - 1)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
