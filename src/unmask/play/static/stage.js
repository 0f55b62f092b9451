// A text on the board, with its steps and edits.

import { Alternatives } from "./alternatives.js";
import { Board } from "./board.js";
import { announce, el, visible } from "./dom.js";
import { Editing } from "./editing.js";
import { downloads } from "./export.js";
import { say } from "./notice.js";
import { layouts, legend } from "./pieces.js";
import { metered, Player } from "./player.js";
import { given, still, textOf } from "./recording.js";
import { facts, PACE } from "./running.js";
import { selecting } from "./selecting.js";
import { packed, packedPlaces } from "./state.js";
import { Tools } from "./tools.js";

export class Stage {
  /** `fill()` fills the masks of the board. */
  constructor({ state, settings, fill }) {
    this.state = state;
    this.settings = settings;
    this.fill = fill;
    this.busy = false; // true while the model generates
    this.recording = null;
    this.editing = new Editing();
    this.board = new Board({ label: "The text, token by token" });
    this.board.layout = state.get("layout");
    this.player = new Player({
      show: (index) => this.#show(index), speed: state.get("speed"),
      onspeed: (speed) => state.set({ speed }),
    });
    this.tools = new Tools({
      fill, mask: () => this.#toggle(), lock: () => this.#lock(),
      rest: () => this.#edit((row) => this.editing.maskRest(row)), undo: () => this.#undo(),
    });
    this.alternatives = new Alternatives({
      ask: (place) => this.#asked(place),
      choose: (place, token) => this.#choose(place, token),
      title: (place) => this.#title(place),
    });
    selecting(this.board, {
      toggle: (place) => this.#toggle(new Set([place])),
      select: (places) => { this.editing.selected = places; this.draw(); },
      act: (deed, place) => this.#act(deed, place),
      point: (place) => this.alternatives.point(this.board.tokens[place], this.busy ? null : place),
    });
    const copy = el("button", { class: "small", onclick: () => this.#copy() }, "Copy text");
    this.root = el(
      "div", { class: "card stage", id: "stage", hidden: true },
      el("div", { class: "row" }, ...this.tools.buttons,
        el("span", { class: "end" }, layouts(state, (name) => { this.board.layout = name; this.draw(); }))),
      this.board.root, this.player.root,
      el("div", { class: "row" }, legend(), el("span", { class: "row end" }, copy, ...downloads(() => this.recording))),
    );
  }

  get frame() {
    return this.recording.frames[this.player.index];
  }

  /** The displayed row up to its end. */
  get row() {
    const { row, end } = this.frame;
    return end === null ? row : row.slice(0, end);
  }

  // Writing

  /** Prepares the board for a text: on the present row, which undo restores, or a new row with `locked`. */
  begin(onThisRow, locked) {
    this.alternatives.close();
    const moment = this.#moment;
    this.takeBoard = () => (onThisRow ? this.editing.began(moment) : this.editing.forget(locked));
    this.busy = true;
    if (this.recording) this.draw();
  }

  /** Adds a step; the first step replaces the text on the board. */
  follow(recording, question) {
    const index = recording.frames.length - 1;
    if (index > 0) return this.player.grow(index * PACE);
    this.takeBoard();
    this.recording = recording;
    this.root.hidden = false;
    this.state.set({ ran: JSON.stringify(question), row: "", locked: packedPlaces(this.editing.locked), at: "" });
    this.player.live = true;
    this.player.load([0], 0);
    return this.player.play();
  }

  /** Ends the recording; a broken stream keeps its last step. */
  end() {
    const { live } = this.player;
    this.busy = this.player.live = false;
    if (!this.recording) return;
    if (live && !this.recording.done) this.player.go(this.recording.frames.length - 1);
    this.draw();
  }

  /** Shows a row without sampler steps. */
  put(cells, locked = new Set()) {
    this.editing.forget(locked);
    this.root.hidden = false;
    this.#keep(still(cells.map(({ id, text }) => given(id, text))));
  }

  clear() {
    this.recording = null;
    this.editing.forget();
    this.root.hidden = true;
  }

  // Editing

  get #moment() {
    const held = { ran: this.state.get("ran"), row: this.state.get("row") };
    return { recording: this.recording, at: this.player.index, held };
  }

  #chosen(place = this.board.focused) {
    return this.editing.selected.size ? this.editing.selected : new Set([place]);
  }

  /** Applies an edit, `(row) => row`, and shows the result as a new text; true if it changed. */
  #edit(deed) {
    if (this.busy || !this.recording) return false;
    const row = this.editing.change(this.row, this.#moment, deed);
    if (row) this.#keep(still(row));
    return Boolean(row);
  }

  #keep(recording) {
    this.recording = recording;
    this.player.load([0], 0);
    this.state.set({ row: packed(this.row), locked: packedPlaces(this.editing.locked), at: "" });
  }

  #toggle(places = this.#chosen()) {
    const done = this.#edit((row) => this.editing.toggle(row, places));
    if (!done) this.#refuse(places);
  }

  #choose(place, { id, text }) {
    const done = this.#edit((row) => this.editing.put(row, place, given(id, text)));
    if (!done) this.#refuse([place]);
  }

  #refuse(places) {
    if ([...places].some((place) => this.editing.locked.has(place))) announce("Locked: unlock it first");
  }

  #lock(places = this.#chosen()) {
    if (this.busy) return;
    this.editing.lock(this.row, places);
    this.state.set({ locked: packedPlaces(this.editing.locked) });
    this.draw();
  }

  #undo() {
    const moment = this.editing.undo(this.row);
    if (!moment) return;
    this.recording = moment.recording;
    this.player.load(this.recording.frames.map((_, index) => index * PACE), moment.at);
    this.state.set({ ...moment.held, locked: packedPlaces(this.editing.locked) });
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
      escape: () => { this.alternatives.close(); this.editing.selected = new Set(); this.draw(); },
    };
    deeds[deed]();
  }

  #asked(place) {
    if (this.busy || !this.recording || this.settings.chosen.conditional) return null;
    const { row } = this;
    if (!row[place]) return null; // after the end of the text
    return { model: this.settings.model.value, tokens: row.map(({ id }) => id), places: [place] };
  }

  #title(place) {
    const { id, text } = this.frame.row[place];
    if (id === null) return "Predictions for this mask";
    return `${this.editing.locked.has(place) ? "Locked. " : ""}Alternatives to “${visible(text)}”`;
  }

  async #copy() {
    const text = textOf(this.frame);
    try {
      await navigator.clipboard.writeText(text);
      say("Text copied.", null, true);
    } catch {
      say(`The clipboard is blocked; copy the text from here: ${text}`, null, true);
    }
  }

  // Drawing

  #show(index) {
    if (!this.recording) return;
    this.draw();
    metered(this.player.meter, facts(this.recording, index));
    if (this.busy) return;
    const { done, frames } = this.recording;
    this.state.set({ at: index === frames.length - 1 ? "" : String(index) });
    if (!done) this.state.set({ row: packed(this.row) }); // a link cannot repeat an aborted text
  }

  draw() {
    if (!this.recording) return;
    const { locked, selected, was } = this.editing;
    this.board.draw(this.frame, { locked, selected, was, room: (place) => this.recording.final(place) });
    this.tools.refresh({
      row: this.frame.row, chosen: this.#chosen(), editing: this.editing, running: this.busy || this.player.playing, model: this.settings.chosen,
    });
  }
}
