// Watch a text form, then edit it: mask, lock, choose, fill.

import { tokens } from "./api.js";
import { Alternatives } from "./alternatives.js";
import { Board } from "./board.js";
import { announce, el, plural, visible } from "./dom.js";
import { Editing } from "./editing.js";
import { downloads } from "./export.js";
import { complain, hush, say } from "./notice.js";
import { legend, layouts, welcome } from "./pieces.js";
import { metered, Player } from "./player.js";
import { given, still, textOf } from "./recording.js";
import { asking, collect, cost, facts, PACE } from "./running.js";
import { selecting } from "./selecting.js";
import { packed, unpacked } from "./state.js";

const EXAMPLES = [
  ["From nothing", ""],
  ["Begin", "Once upon a time"],
  ["Fill gaps", "Tom was [MASK:3] because his [MASK] was lost."],
  ["Arrive", "Lily went to the park. [MASK:24] She was happy and went home."],
];
const GAP = /\[MASK(:\d+)?\]/;

export function writeView(root, app) {
  return new WriteView(root, app);
}

class WriteView {
  constructor(root, { state, settings }) {
    this.state = state;
    this.settings = settings;
    this.board = new Board({ label: "The text, token by token" });
    this.player = new Player({
      show: (index) => this.#show(index), speed: state.get("speed"),
      onspeed: (speed) => state.set({ speed }),
    });
    this.editing = new Editing();
    this.alternatives = new Alternatives({
      ask: (place) => this.#asked(place),
      choose: (place, token) => this.#edit((row) => this.editing.put(row, place, given(token.id, token.text))),
      title: (place) => this.#title(place),
    });
    this.#build(root);
    selecting(this.board, {
      toggle: (place) => this.#toggle(new Set([place])),
      select: (places) => { this.editing.selected = places; this.#draw(); },
      act: (deed, place) => this.#act(deed, place),
      point: (place) => this.alternatives.point(this.board.tokens[place], this.running ? null : place),
    });
    this.#restore();
  }

  #build(root) {
    const { state } = this;
    this.text = el("textarea", {
      id: "text", rows: 2, maxlength: 20000, value: state.get("text"), spellcheck: "false",
      placeholder: "Leave this empty, begin a text, or write one with gaps: Tom was [MASK:3] because his [MASK] was lost.",
      oninput: () => { state.set({ text: this.text.value }); this.#labels(); },
      onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.write(); },
    });
    this.writeButton = el("button", { class: "primary", id: "write", onclick: () => this.write() });
    this.stopButton = el("button", { id: "stop", hidden: true, onclick: () => this.abort?.abort() }, "Stop");
    this.take = el("button", { id: "take", onclick: () => this.#take() }, "Only show as tokens");
    const chips = EXAMPLES.map(([name, text]) =>
      el("button", { class: "chip", onclick: () => { this.text.value = text; state.set({ text }); this.#labels(); this.write(); } }, name));
    const composer = el(
      "div", { class: "card composer" },
      el("label", { for: "text", class: "unseen" }, "Your text; [MASK] is a gap of one token, [MASK:3] of three"),
      this.text,
      el("div", { class: "row" }, this.writeButton, this.stopButton, this.take,
        el("span", { class: "chips end" }, el("span", { class: "label" }, "Try:"), ...chips)),
    );
    this.fillButton = el("button", { class: "primary", id: "fill", onclick: () => this.fill() }, "Fill the gaps");
    this.tools = {
      mask: tool("Mask", () => this.#toggle()),
      lock: tool("Lock", () => this.#lock()),
      rest: tool("Mask all but locked", () => this.#edit((row) => this.editing.maskRest(row))),
      undo: tool("Undo", () => this.#undo()),
    };
    this.empty = welcome();
    const copy = el("button", { class: "small", onclick: () => this.#copy() }, "Copy text");
    this.afterwards = el("div", { class: "row" }, legend(), el("span", { class: "row end" }, copy, ...downloads(() => this.recording)));
    this.stage = el(
      "div", { class: "card", id: "stage" },
      el("div", { class: "row toolbar" }, this.fillButton, ...Object.values(this.tools),
        el("span", { class: "end" }, layouts(state, (name) => { this.board.layout = name; this.#draw(); }))),
      this.board.root, this.player.root, this.afterwards,
    );
    this.board.layout = state.get("layout");
    root.append(composer, this.empty, this.stage);
    this.remodelled();
    this.#labels();
    this.#present();
  }

  // Writing

  /** Begins, goes on from, or fills the text of the field. */
  write() {
    const question = asking({ ...this.settings.question(), text: this.text.value }, this.settings.picker);
    if (GAP.test(question.text)) delete question.length;
    this.editing.forget();
    return this.#run(question, []);
  }

  /** Fills the masks of the board; what is not masked stays. */
  fill() {
    const { length, ...rest } = this.settings.question();
    const row = this.#row;
    if (!row.some(({ id }) => id === null)) {
      say("Nothing is masked: click tokens to mask them, then fill.", null, true);
      return null;
    }
    return this.#run(asking({ ...rest, tokens: row.map(({ id }) => id) }, this.settings.picker), row);
  }

  async #run(question, before, at = null) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    this.running = true;
    this.alternatives.close();
    this.editing.began();
    hush();
    this.#labels();
    announce("Writing");
    try {
      const recording = await collect(question, {
        before, signal: abort.signal, onframe: (growing) => this.#grown(growing),
      });
      this.state.set({ ran: JSON.stringify(question), row: "", at: "" });
      announce(`Done: ${plural(recording.last.row.length, "token")}, ${cost(recording)}`);
      if (at !== null) this.player.go(at);
    } catch (error) {
      complain(error, () => this.#run(question, before, at));
      if (this.recording && !this.recording.done) this.#settle();
    } finally {
      if (this.abort === abort) {
        this.running = this.player.live = false;
        this.#labels();
        this.#draw();
      }
    }
  }

  #grown(recording) {
    const index = recording.frames.length - 1;
    this.recording = recording;
    if (index === 0) {
      this.player.live = true;
      this.#present();
      this.player.load([0], 0);
      this.player.play();
    } else {
      this.player.grow(index * PACE);
    }
  }

  /** What a broken stream has left is a text too. */
  #settle() {
    this.player.go(this.recording.frames.length - 1);
  }

  // Editing

  get #frame() {
    return this.recording.frames[this.player.index];
  }

  #chosen(place = this.board.focused) {
    return this.editing.selected.size ? this.editing.selected : new Set([place]);
  }

  /** The row that is shown, without what stands behind its end. */
  get #row() {
    const { row, end } = this.#frame;
    return end === null ? row : row.slice(0, end);
  }

  /** The board is changed by hand, by `(row) => row`: it is a text of its own then. */
  #edit(deed) {
    if (this.running || !this.recording) return false;
    const moment = { recording: this.recording, at: this.player.index };
    const row = this.editing.change(this.#row, moment, deed);
    if (!row) return false;
    this.#keep(still(row));
    return true;
  }

  #keep(recording) {
    this.recording = recording;
    this.player.load([0], 0);
    this.state.set({ row: packed(this.#row, this.editing.locked), at: "" });
    this.#labels();
  }

  #toggle(places = this.#chosen()) {
    const done = this.#edit((row) => this.editing.toggle(row, places));
    if (!done && [...places].some((place) => this.editing.locked.has(place))) announce("Locked: unlock it first");
  }

  #lock(places = this.#chosen()) {
    if (this.running) return;
    this.editing.lock(this.#row, places);
    this.state.set({ row: packed(this.#row, this.editing.locked) });
    this.#draw();
  }

  #act(deed, place) {
    const deeds = {
      toggle: () => this.#toggle(this.#chosen(place)),
      mask: () => this.#toggle(this.#chosen(place)),
      lock: () => this.#lock(this.#chosen(place)),
      alternatives: () => this.alternatives.enter(this.board.tokens[place], place),
      play: () => this.player.toggle(),
      back: () => this.player.step(-1),
      on: () => this.player.step(1),
      fill: () => this.fill(),
      escape: () => { this.alternatives.close(); this.editing.selected = new Set(); this.#draw(); },
    };
    deeds[deed]();
  }

  #undo() {
    const moment = this.editing.undo();
    if (!moment) return;
    this.recording = moment.recording;
    this.player.load(this.recording.frames.map((_, index) => index * PACE), moment.at);
    const written = this.recording.frames.length > 1 && !this.editing.locked.size;
    this.state.set({ row: written ? "" : packed(this.#row, this.editing.locked) });
    this.#labels();
  }

  /** The text of the field as tokens, with nothing written. */
  async #take() {
    try {
      const found = await tokens({ model: this.settings.model.value, text: this.text.value });
      if (!found.tokens.length) return say("Write something first: the field is empty.", null, true);
      this.#put(found.tokens, new Set());
    } catch (error) {
      complain(error, () => this.#take());
    }
    return null;
  }

  #put(cells, locked) {
    hush();
    this.editing.forget(locked);
    this.state.set({ ran: "" });
    this.recording = still(cells.map(({ id, text }) => given(id, text)));
    this.#present();
    this.#keep(this.recording);
  }

  #asked(place) {
    if (this.running || !this.recording || this.settings.chosen.conditional) return null;
    const row = this.#row;
    if (!row[place]) return null; // behind the end of the text
    return { model: this.settings.model.value, tokens: row.map(({ id }) => id), places: [place] };
  }

  #title(place) {
    const { id, text } = this.#frame.row[place];
    return id === null ? "What the model would put here" : `What could stand for “${visible(text)}”`;
  }

  async #copy() {
    const text = textOf(this.#frame);
    try {
      await navigator.clipboard.writeText(text);
      say("Text copied.", null, true);
    } catch {
      say(`Your browser keeps its clipboard closed; here is the text: ${text}`, null, true);
    }
  }

  // Drawing

  #show(index) {
    if (!this.recording) return;
    this.#draw();
    metered(this.player.meter, facts(this.recording, index));
    if (!this.running) this.state.set({ at: index === this.recording.frames.length - 1 ? "" : String(index) });
    this.#labels();
  }

  #draw() {
    if (!this.recording) return;
    this.board.draw(this.#frame, {
      locked: this.editing.locked, selected: this.editing.selected, was: this.editing.was,
      room: (place) => this.recording.final(place),
    });
    this.#tools();
  }

  #present() {
    this.empty.hidden = Boolean(this.recording);
    this.stage.hidden = !this.recording;
  }

  #labels() {
    const { value } = this.text;
    this.writeButton.textContent = GAP.test(value) ? "Fill the gaps" : value.trim() ? "Go on from here" : "Write";
    this.writeButton.disabled = this.running === true;
    this.stopButton.hidden = !this.running;
    this.take.disabled = this.running === true || !value.trim();
    if (this.recording) this.#tools();
  }

  #tools() {
    const gaps = this.#frame.row.filter(({ id }) => id === null).length;
    const fills = this.settings.chosen.order === "any" && !this.settings.chosen.conditional;
    this.fillButton.disabled = this.running || !gaps || !fills;
    this.fillButton.textContent = gaps && !this.running ? `Fill ${plural(gaps, "gap")}` : "Fill the gaps";
    for (const each of [this.tools.mask, this.tools.lock, this.tools.rest]) each.disabled = this.running || !fills;
    const chosen = [...this.#chosen()];
    this.tools.mask.textContent = chosen.every((place) => this.#frame.row[place]?.id === null) ? "Bring back" : "Mask";
    this.tools.lock.textContent = chosen.every((place) => this.editing.locked.has(place)) ? "Unlock" : "Lock";
    this.tools.undo.disabled = this.running || !this.editing.past.length;
  }

  // The page around it

  /** What a link says: an edited board, or a text to write again. */
  async #restore() {
    const row = unpacked(this.state.get("row"));
    const question = this.state.question("ran");
    try {
      if (this.state.get("row") && row) {
        const found = await tokens({ model: this.settings.model.value, tokens: row.tokens });
        this.#put(found.tokens, row.locked);
      } else if (question) {
        const at = this.state.get("at");
        await this.#run(question, [], at === "" ? null : Number(at));
      }
    } catch (error) {
      complain(error, () => this.#restore());
    }
  }

  remodelled() {
    this.board.letters = !this.settings.chosen.words;
    if (this.recording) this.#clear();
  }

  /** The tokens of one model are not those of another. */
  #clear() {
    this.abort?.abort();
    this.recording = null;
    this.editing.forget();
    this.state.set({ row: "", ran: "", at: "" });
    this.#present();
  }

  shown() {}

  hidden() {
    this.player.pause();
    this.alternatives.close();
  }
}

function tool(name, act) {
  return el("button", { class: "small", onclick: act }, name);
}
