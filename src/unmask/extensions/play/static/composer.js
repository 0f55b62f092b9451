// The text field with its button; the text may be empty, a beginning, or a text with gaps.

import { el } from "./dom.js";

const GAPS = /\[MASK(?::(\d+))?\]|(?<!\w)_+(?!\w)/g; // a gap of three tokens: [MASK:3] or ___
const DNA_GAPS = /\[MASK(?::(\d+))?\]|_+/g; // in DNA also beside letters
const DNA_PLACEHOLDER = "Leave this empty and press the button, or type the bases of a sequence. Underscores are gaps: TATAAAAG____________GCCATGG";
const PLACEHOLDER = "Leave this empty and press the button, or type a beginning. Underscores are gaps: Tom was ___ because his _ was lost.";

/** The number of tokens in the gaps of a typed text; `dna` for a model of DNA. */
export function gapsOf(text, dna) {
  return [...text.matchAll(dna ? DNA_GAPS : GAPS)].reduce((sum, [all, count]) => sum + (all[0] === "_" ? all.length : Number(count ?? 1)), 0);
}

/** The text with every gap as [MASK:n]. */
function withMasks(text, dna) {
  return text.replace(dna ? DNA_GAPS : GAPS, (all) => (all[0] === "_" ? `[MASK:${all.length}]` : all));
}

export class Composer {
  /** `go()` runs the model, `stop()` aborts it, `label(text)` returns the label of the button, `model()` the chosen model. */
  constructor({ id, state, go, stop, label, model }) {
    this.state = state;
    this.model = model;
    this.label = label;
    this.text = el("textarea", {
      id, rows: 3, maxlength: 20000, value: state.get("text"), spellcheck: "false",
      "aria-label": "Text; one underscore is a gap of one token, three underscores are a gap of three",
      oninput: () => this.setText(this.text.value),
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); },
    });
    this.goButton = el("button", { class: "primary go", id: `${id}-go`, title: "Ctrl + Enter", onclick: go });
    this.stopButton = el("button", { class: "go", id: `${id}-stop`, hidden: true, onclick: stop }, "Stop");
    this.refresh();
  }

  setText(text) {
    if (this.text.value !== text) this.text.value = text;
    this.state.set({ text });
    this.refresh();
  }

  /** The request with the text; a text with gaps sets its own length. */
  request({ length, ...settings }) {
    const text = withMasks(this.text.value, this.model().dna);
    return gapsOf(text) ? { ...settings, text } : { ...settings, length, text };
  }

  refresh(running = this.running) {
    this.running = running === true;
    this.text.placeholder = this.model().dna ? DNA_PLACEHOLDER : PLACEHOLDER;
    this.goButton.textContent = this.label(this.text.value);
    this.goButton.hidden = this.running;
    this.stopButton.hidden = !this.running;
  }
}
