// The view that generates a text, shows its steps, and lets the user edit and fill it.

import { tokens } from "./api.js";
import { Composer } from "./composer.js";
import { announce, el, plural } from "./dom.js";
import { hideNotice, showError, showNotice } from "./notice.js";
import { welcome } from "./pieces.js";
import { collect, cost, withSampler } from "./running.js";
import { Stage } from "./stage.js";
import { unpacked, unpackedPlaces } from "./state.js";

const EXAMPLES = [
  ["No prompt", ""],
  ["Prompt", "Once upon a time"],
  ["Fill gaps", "Tom was [MASK:3] because his [MASK] was lost."],
  ["Given end", "Lily went to the park. [MASK:24] She was happy and went home."],
];

export function writeView(root, app) {
  return new WriteView(root, app);
}

class WriteView {
  constructor(root, { state, settings }) {
    this.state = state;
    this.settings = settings;
    this.stage = new Stage({ state, settings, fill: () => this.fill() });
    this.empty = welcome();
    this.take = el("button", { id: "take", onclick: () => this.#tokenize() }, "Show as tokens");
    const chips = EXAMPLES.map(([name, text]) =>
      el("button", { class: "chip", title: text || "A text without a prompt", onclick: () => { this.composer.setText(text); this.write(); } }, name));
    this.composer = new Composer({
      id: "text", state, go: () => this.write(), stop: () => this.abort?.abort(),
      labels: { empty: "Write", start: "Continue the text", gaps: "Fill the gaps" },
      beside: [this.take, el("span", { class: "chips end" }, el("span", { class: "label" }, "Try:"), ...chips)],
    });
    root.append(this.composer.root, this.empty, this.stage.root);
    this.stage.board.letters = !settings.chosen.words;
    this.#restore();
  }

  /** Generates, continues or fills the text of the field. */
  write() {
    return this.#run(withSampler(this.composer.request(this.settings.request()), this.settings.picker));
  }

  /** Fills the masks of the board; other tokens stay. */
  fill() {
    const { length, ...rest } = this.settings.request();
    const { row } = this.stage;
    if (!row.some(({ id }) => id === null)) {
      showNotice("No token is masked: click tokens to mask them, then fill the gaps.", null, true);
      return null;
    }
    return this.#run(withSampler({ ...rest, tokens: row.map(({ id }) => id) }, this.settings.picker), { before: row });
  }

  /** Aborts the running request and returns the abort controller of the next one. */
  #abortPrevious() {
    this.abort?.abort();
    hideNotice();
    return (this.abort = new AbortController());
  }

  /** Runs a request. `before`: the row to fill, null for a new text; `locked`: locks of a new text; `at`: the step to show at the end. */
  async #run(request, { before = null, locked, at = null } = {}) {
    const abort = this.#abortPrevious();
    this.stage.begin(before !== null, locked);
    this.composer.refresh(true);
    announce("Writing");
    try {
      const recording = await collect(request, {
        before: before ?? [], signal: abort.signal,
        onframe: (growing) => { this.empty.hidden = true; this.stage.follow(growing, request); },
      });
      announce(`Done: ${plural(recording.last.row.length, "token")}, ${cost(recording)}`);
    } catch (error) {
      showError(error, () => this.#run(request, { before, locked, at }));
    }
    if (this.abort !== abort) return; // another request has replaced this one
    this.stage.end();
    if (at !== null) this.stage.player.go(at);
    this.composer.refresh(false);
  }

  /** Shows the text of the field as tokens, without generation. */
  async #tokenize() {
    const text = this.composer.text.value;
    if (!text.trim()) return showNotice("The text field is empty: type a text first.", null, true);
    return this.#showTokens({ text });
  }

  async #showTokens(textOrTokens, locked) {
    const abort = this.#abortPrevious();
    this.stage.end();
    this.composer.refresh(false);
    try {
      const found = await tokens({ model: this.settings.model.value, ...textOrTokens }, abort.signal);
      this.state.set({ ran: "" });
      this.empty.hidden = true;
      this.stage.put(found.tokens, locked);
    } catch (error) {
      showError(error, () => this.#showTokens(textOrTokens, locked));
    }
  }

  /** Restores the state of a link: an edited board, or a text to generate again. */
  #restore() {
    const row = unpacked(this.state.get("row"));
    const request = this.state.request("ran");
    const at = this.state.get("at");
    const locked = unpackedPlaces(this.state.get("locked"));
    if (row) this.#showTokens({ tokens: row }, locked);
    else if (request) this.#run(request, { locked, at: /^\d+$/.test(at) ? Number(at) : null });
  }

  modelChanged() {
    this.abort?.abort();
    this.stage.board.letters = !this.settings.chosen.words;
    this.stage.clear();
    this.empty.hidden = false;
  }

  shown() {
    this.composer.setText(this.state.get("text"));
  }

  hidden() {
    if (!this.stage.player.live) this.stage.player.pause();
    this.stage.alternatives.close();
  }
}
