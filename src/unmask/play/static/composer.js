// The text field with its buttons; the text may be empty, a prompt, or a text with gaps.

import { el } from "./dom.js";

const GAP = /\[MASK(:\d+)?\]/;
export const PLACEHOLDER = "Leave this empty, type a prompt, or type a text with gaps: Tom was [MASK:3] because his [MASK] was lost.";

export class Composer {
  /** `go()` runs the model; `labels` has the label of its button by kind of text; `beside` are further elements. */
  constructor({ id, state, go, labels, stop, beside = [] }) {
    this.state = state;
    this.labels = labels;
    this.text = el("textarea", {
      id, rows: 2, maxlength: 20000, value: state.get("text"), spellcheck: "false", placeholder: PLACEHOLDER,
      oninput: () => this.setText(this.text.value),
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); },
    });
    this.goButton = el("button", { class: "primary", id: `${id}-go`, onclick: go });
    this.stopButton = el("button", { id: `${id}-stop`, hidden: true, onclick: stop }, "Stop");
    this.root = el(
      "div", { class: "card composer" },
      el("label", { for: id, class: "unseen" }, "Text; [MASK] is a gap of one token, [MASK:3] of three"),
      this.text,
      el("div", { class: "row" }, this.goButton, this.stopButton, ...beside),
    );
    this.refresh();
  }

  setText(text) {
    if (this.text.value !== text) this.text.value = text;
    this.state.set({ text });
    this.refresh();
  }

  /** The request with the text; a text with gaps sets its own length. */
  request(settings) {
    const request = { ...settings, text: this.text.value };
    if (this.#kind === "gaps") delete request.length;
    return request;
  }

  get #kind() {
    const { value } = this.text;
    return GAP.test(value) ? "gaps" : value.trim() ? "start" : "empty";
  }

  refresh(running = this.running) {
    this.running = running;
    this.goButton.textContent = this.labels[this.#kind];
    this.goButton.disabled = running === true;
    this.stopButton.hidden = !running;
  }
}
