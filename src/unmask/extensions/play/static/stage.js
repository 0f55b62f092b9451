// The text on the board, with its steps, its player and its edits.

import { Alternatives } from "./alternatives.js";
import { style } from "./api.js";
import { Board } from "./board.js";
import { announce, el, visible } from "./dom.js";
import { Editing } from "./editing.js";
import { downloads, saveFasta } from "./export.js";
import { showError, showNotice } from "./notice.js";
import { legend } from "./pieces.js";
import { drawFacts, Player } from "./player.js";
import { gapsIn, given, singleFrame, textOf, untilEnd } from "./recording.js";
import { facts, PACE } from "./running.js";
import { enableSelection } from "./selecting.js";
import { packed, packedPlaces } from "./state.js";
import { Tools } from "./tools.js";

export class Stage {
  /** `go()` fills the gaps, `type()` opens the text field; each new drawing calls `changed()`. */
  constructor({ state, settings, go, type, changed }) {
    this.state = state;
    this.settings = settings;
    this.go = go;
    this.type = type;
    this.changed = changed;
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
      erase: () => this.#toggle(), lock: () => this.#lock(),
      rest: () => this.#edit((row) => this.editing.maskRest(row)), style: () => this.#eraseByLabel(), undo: () => this.#undo(),
    });
    this.alternatives = new Alternatives({
      requestFor: (place) => this.#requestFor(place),
      choose: (place, token) => this.#choose(place, token),
      title: (place) => this.#title(place),
    });
    enableSelection(this.board, {
      toggle: (place) => this.#toggle(new Set([place])),
      select: (places) => { this.editing.selected = places; this.draw(); },
      act: (action, place) => this.#act(action, place),
      point: (place) => this.alternatives.point(this.board.tokens[place], this.busy ? null : place),
    });
    this.progress = el("progress", { max: 1, "aria-label": "Written part of the text", hidden: true });
    const copy = el("button", { class: "small", onclick: () => this.#copy() }, "Copy text");
    const fasta = () => saveFasta(textOf(this.frame, (gap) => "N".repeat(gap), ""));
    this.fasta = el("button", { class: "small", id: "save-fasta", onclick: fasta, title: "Download the sequence as FASTA" }, "FASTA");
    this.fasta.hidden = !settings.chosen.dna;
    this.foot = [legend(), el("span", { class: "row end" }, copy, this.fasta, ...downloads(() => this.recording))];
  }

  get frame() {
    return this.recording.frames[this.player.index];
  }

  /** The displayed row up to its end. */
  get row() {
    return untilEnd(this.frame);
  }

  // Writing

  /** Prepares the board for generation: it fills the displayed row, which undo restores, or makes a new row with the locks `locked`. */
  begin(onThisRow, locked) {
    this.alternatives.close();
    const snapshot = this.#snapshot;
    this.resetEdits = () => (onThisRow ? this.editing.beginFill(snapshot) : this.editing.reset(locked));
    this.busy = true;
    this.progress.hidden = false;
    this.progress.removeAttribute("value"); // until the first step
    if (this.recording) this.draw();
  }

  /** Adds a step; the first step replaces the text on the board. */
  follow(recording, request) {
    const index = recording.frames.length - 1;
    if (index > 0) this.progress.value = 1 - gapsIn(recording.last) / gapsIn(recording.frames[0]);
    if (index > 0) return this.player.addStep(index * PACE);
    this.resetEdits();
    this.recording = recording;
    this.state.set({ ran: JSON.stringify(request), row: "", locked: packedPlaces(this.editing.locked), at: "" });
    this.player.live = true;
    this.player.load([0], 0);
    return this.player.play();
  }

  /** Ends the recording; after an aborted stream the board shows the last step. */
  end() {
    const { live } = this.player;
    this.busy = this.player.live = false;
    this.progress.hidden = true;
    if (!this.recording) return;
    if (live && !this.recording.done) this.player.go(this.recording.frames.length - 1);
    else this.#show(this.player.index);
  }

  /** Shows a row without sampler steps. */
  put(cells, locked = new Set()) {
    this.editing.reset(locked);
    this.#replace(singleFrame(cells.map(({ id, text }) => given(id, text))));
  }

  clear() {
    this.fasta.hidden = !this.settings.chosen.dna;
    this.recording = null;
    this.editing.reset();
  }

  // Editing

  get #snapshot() {
    const held = { ran: this.state.get("ran"), row: this.state.get("row") };
    return { recording: this.recording, at: this.player.index, held };
  }

  #chosen(place = this.board.focused) {
    return this.editing.selected.size ? this.editing.selected : new Set([place]);
  }

  /** Applies an edit, `(row) => row`, and shows the result as a new text; true if it changed. */
  #edit(edit) {
    if (this.busy || !this.recording) return false;
    const row = this.editing.change(this.row, this.#snapshot, edit);
    if (row) this.#replace(singleFrame(row));
    return Boolean(row);
  }

  #replace(recording) {
    this.recording = recording;
    this.player.load([0], 0);
    this.state.set({ row: packed(this.row), locked: packedPlaces(this.editing.locked), at: "" });
  }

  #toggle(places = this.#chosen()) {
    const done = this.#edit((row) => this.editing.toggle(row, places));
    if (!done) this.#announceLock(places);
  }

  /** Masks the words that speak most against the label of the settings; a fill then follows the label. */
  async #eraseByLabel() {
    const { model, label = "" } = this.settings.request();
    const { row } = this;
    try {
      const { places } = await style({ model, label, tokens: row.map(({ id }) => id) });
      if (packed(this.row) === packed(row)) this.#edit((now) => this.editing.mask(now, places));
    } catch (error) {
      showError(error, () => this.#eraseByLabel());
    }
  }

  #choose(place, { id, text }) {
    const done = this.#edit((row) => this.editing.put(row, place, given(id, text)));
    if (!done) this.#announceLock([place]);
  }

  #announceLock(places) {
    if ([...places].some((place) => this.editing.locked.has(place))) announce("Locked: unlock it first");
  }

  #lock(places = this.#chosen()) {
    if (this.busy) return;
    this.editing.lock(this.row, places);
    this.state.set({ locked: packedPlaces(this.editing.locked) });
    this.draw();
  }

  #undo() {
    const snapshot = this.editing.undo(this.row);
    if (!snapshot) return;
    this.recording = snapshot.recording;
    this.player.load(this.recording.frames.map((_, index) => index * PACE), snapshot.at);
    this.state.set({ ...snapshot.held, locked: packedPlaces(this.editing.locked) });
  }

  #act(action, place) {
    const actions = {
      toggle: () => this.#toggle(this.#chosen(place)),
      mask: () => this.#toggle(this.#chosen(place)),
      lock: () => this.#lock(this.#chosen(place)),
      alternatives: () => this.alternatives.enter(this.board.tokens[place], place),
      play: () => this.player.toggle(),
      back: () => this.player.step(-1),
      on: () => this.player.step(1),
      fill: () => this.go(),
      type: () => this.type(),
      escape: () => { this.alternatives.close(); this.editing.selected = new Set(); this.draw(); },
    };
    actions[action]();
  }

  #requestFor(place) {
    if (this.busy || !this.recording || this.settings.chosen.conditional) return null;
    const { row } = this;
    if (!row[place]) return null; // after the end of the text
    return { model: this.settings.model.value, tokens: row.map(({ id }) => id), places: [place] };
  }

  #title(place) {
    const { id, text } = this.frame.row[place];
    if (id === null) return "The model's guesses for this gap";
    return `${this.editing.locked.has(place) ? "Locked. " : ""}Other words than “${visible(text)}”`;
  }

  async #copy() {
    const text = textOf(this.frame, (gap) => `[MASK:${gap}]`, this.settings.chosen.dna ? "" : " ");
    try {
      await navigator.clipboard.writeText(text);
      showNotice("Text copied.", null, true);
    } catch {
      showNotice(`The clipboard is blocked; copy the text from here: ${text}`, null, true);
    }
  }

  // Drawing

  #show(index) {
    if (!this.recording) return;
    this.draw();
    drawFacts(this.player.meter, facts(this.recording, index, this.busy));
    if (this.busy) return;
    const { done, frames } = this.recording;
    this.state.set({ at: index === frames.length - 1 ? "" : String(index) });
    if (!done) this.state.set({ row: packed(this.row) }); // a link cannot reproduce an aborted text
  }

  draw() {
    if (!this.recording) return;
    const { locked, selected, was } = this.editing;
    this.board.draw(this.frame, { locked, selected, was, final: (place) => this.recording.final(place) });
    this.tools.refresh({
      row: this.frame.row, chosen: this.#chosen(), editing: this.editing, running: this.busy || this.player.playing, model: this.settings.chosen,
    });
    this.changed();
  }
}
