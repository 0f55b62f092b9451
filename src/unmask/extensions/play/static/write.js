// The view with one text: the model writes it step by step, the user edits it, the model fills its gaps.

import { tokens } from "./api.js";
import { Composer, gapsOf } from "./composer.js";
import { announce, el, plural } from "./dom.js";
import { hideNotice, showError } from "./notice.js";
import { layouts, welcome } from "./pieces.js";
import { gapsIn, textOf, untilEnd } from "./recording.js";
import { collect, cost, withSampler } from "./running.js";
import { Stage } from "./stage.js";
import { unpacked, unpackedPlaces } from "./state.js";

const EXAMPLES = [
  ["A new story", ""],
  ["A beginning", "Once upon a time, a little fox found a"],
  ["Gaps", "Tom was ___ because his _ was lost."],
  ["An ending", `Lily went to the park. ${"_".repeat(40)} She was happy and went home.`],
];
const DNA_EXAMPLES = [
  ["A new sequence", ""],
  ["A beginning", "GCCACCATGG"],
  ["A gap", `TATAAAAG${"_".repeat(24)}GCCACCATGG`],
];
const SAME = { refill: "Fill again", rewrite: "Write another" };

export function writeView(root, app) {
  return new WriteView(root, app);
}

class WriteView {
  constructor(root, { state, settings }) {
    this.state = state;
    this.settings = settings;
    this.typing = true;
    this.stage = new Stage({ state, settings, go: () => this.go(), type: () => this.#type(), changed: () => this.composer.refresh() });
    this.composer = new Composer({
      id: "text", state, go: () => this.go(), stop: () => this.abort?.abort(), label: (text) => this.#label(text),
      model: () => settings.chosen,
    });
    this.examples = el("span", { class: "chips" });
    this.#showExamples();
    this.take = el("button", { class: "small", id: "take", onclick: () => (this.typing ? this.#tokenize() : this.#type()) });
    this.welcome = welcome();
    const { stage, composer } = this;
    this.looks = layouts(state, (name) => { stage.board.layout = name; stage.draw(); });
    this.shelf = el("span", { class: "tools" }, ...stage.tools.buttons);
    this.foot = el("div", { class: "row foot" }, ...stage.foot);
    root.append(el(
      "div", { class: "card sheet", id: "stage" },
      el("div", { class: "row head" }, this.examples, this.shelf, el("span", { class: "row end" }, this.take, this.looks)),
      el("div", { class: "paper" }, composer.text, stage.board.root, this.welcome),
      el("div", { class: "dock" }, composer.goButton, composer.stopButton, stage.player.root, stage.progress),
      this.foot,
    ));
    stage.board.letters = !settings.chosen.words;
    this.#show({ typing: true });
    this.#restore();
  }

  #showExamples() {
    const chips = (this.settings.chosen.dna ? DNA_EXAMPLES : EXAMPLES).map(([name, text]) =>
      el("button", { class: "chip", title: text || "A text without a beginning", onclick: () => { this.composer.setText(text); this.go(); } }, name));
    this.examples.replaceChildren(el("span", { class: "label" }, "Try:"), ...chips);
  }

  /** Shows the text field or the board: they hold the same text. */
  #show({ typing }) {
    this.typing = typing;
    this.composer.text.hidden = this.examples.hidden = !typing;
    for (const part of [this.stage.board.root, this.stage.player.root, this.looks, this.shelf, this.foot]) part.hidden = typing;
    this.welcome.hidden = !typing || Boolean(this.stage.recording);
    this.composer.text.closest(".sheet").classList.toggle("written", !typing);
    this.take.textContent = typing ? "Show words" : "Type";
    this.take.title = typing ? "Show the text as tokens, to erase, lock or replace them" : "Edit the text with the keyboard (T)";
    this.composer.refresh();
  }

  #label(text) {
    const gaps = this.typing ? gapsOf(text, this.settings.chosen.dna) : this.#gaps;
    if (gaps) return `Fill ${plural(gaps, "gap")}`;
    if (this.typing || !this.state.get("ran")) return text.trim() && !this.settings.chosen.conditional ? "Continue" : "Write";
    return this.#filled ? SAME.refill : SAME.rewrite;
  }

  /** The gaps of the board; while it plays, those of its last step. */
  get #gaps() {
    const { stage } = this;
    if (!stage.recording || !this.settings.chosen.fills || this.settings.chosen.conditional) return 0;
    return gapsIn(stage.player.playing ? stage.recording.last : stage.frame);
  }

  /** True if the text on the board came from filling the gaps of a row or of a typed text. */
  get #filled() {
    const ran = this.state.request("ran");
    return Boolean(ran && (ran.tokens || ran.text?.includes("[MASK")) && gapsIn(this.stage.recording.frames[0]));
  }

  /** Fills the gaps of the board, fills the same gaps again, or writes from the text of the field. */
  go() {
    if (this.composer.running) return null;
    const { stage, settings } = this;
    let row = null;
    if (!this.typing && this.#gaps) row = stage.row;
    else if (!this.typing && this.#filled) row = untilEnd(stage.recording.frames[0]);
    else if (!this.typing && !this.state.get("ran")) this.#copyText(); // the board may have other words than the field
    if (!row) return this.#run(withSampler(this.composer.request(settings.request()), settings.picker));
    const { length, ...request } = settings.request();
    return this.#run(withSampler({ ...request, tokens: row.map(({ id }) => id) }, settings.picker), { before: row });
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
        onframe: (growing) => {
          this.stage.follow(growing, request);
          if (this.typing) this.#show({ typing: false });
        },
      });
      announce(`Done: ${plural(recording.last.row.length, "token")}, ${cost(recording)}`);
    } catch (error) {
      showError(error, () => this.#run(request, { before, locked, at }));
    }
    if (this.abort !== abort) return; // another request has replaced this one
    this.composer.running = false;
    this.stage.end();
    if (at !== null) this.stage.player.go(at);
    this.composer.refresh();
  }

  /** Copies the text of the board to the field; a model of pairs has its source there. */
  #copyText() {
    const { conditional, dna } = this.settings.chosen;
    if (!conditional) this.composer.setText(textOf(this.stage.frame, (gap) => "_".repeat(gap), dna ? "" : " "));
  }

  /** Shows the text of the board in the field. */
  #type() {
    if (this.composer.running) this.abort.abort();
    const { stage, composer } = this;
    this.#copyText();
    this.typed = composer.text.value;
    stage.alternatives.close();
    stage.player.pause();
    this.#show({ typing: true });
    composer.text.focus();
  }

  /** Shows the text of the field as tokens; an unchanged text keeps its steps and locks. */
  #tokenize() {
    const text = this.composer.text.value;
    if (this.stage.recording && text === this.typed) return this.#show({ typing: false });
    return this.#showTokens({ text: this.composer.request({}).text });
  }

  async #showTokens(textOrTokens, locked) {
    const abort = this.#abortPrevious();
    this.stage.end();
    this.composer.refresh(false);
    try {
      const found = await tokens({ model: this.settings.model.value, ...textOrTokens }, abort.signal);
      if (!found.tokens.length) return;
      this.state.set({ ran: "" });
      this.stage.put(found.tokens, locked);
      this.#show({ typing: false });
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
    this.#showExamples();
    this.#show({ typing: true });
  }

  shown() {
    this.composer.setText(this.state.get("text"));
  }

  hidden() {
    if (!this.stage.player.live) this.stage.player.pause();
    this.stage.alternatives.close();
  }
}
