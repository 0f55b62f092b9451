// Compares two samplers on the same text: results, network calls and seconds.

import { Board } from "./board.js";
import { Composer, gapsOf } from "./composer.js";
import { announce, el } from "./dom.js";
import { hideNotice, showError } from "./notice.js";
import { legend, layouts } from "./pieces.js";
import { Player } from "./player.js";
import { collect, withSampler } from "./running.js";
import { enableSelection } from "./selecting.js";
import { ownSampler, parseSpec, SamplerPicker, samplerName } from "./settings.js";

const LEAST_REPLAY = 4; // seconds of a replay at speed 1, at least

const WELL = [{ spec: "left_to_right", steps: "" }, { spec: "predictor_corrector", steps: "16" }]; // samplers that write well

/** Another sampler that suits the model and writes well, or else the model's own. */
function otherSampler(model) {
  const own = ownSampler(model);
  return WELL.find(({ spec }) => spec !== parseSpec(own.spec).name && model.samplers.includes(spec)) ?? own;
}

export function compareView(root, app) {
  return new CompareView(root, app);
}

class Side {
  constructor(name, title, own, { menu, state, settings }) {
    this.picker = new SamplerPicker({ menu, state, names: [name, `${name}Steps`], own });
    this.picker.fit(settings.chosen);
    this.board = new Board({ label: `Text of the ${title} sampler` });
    const nothing = () => {};
    enableSelection(this.board, { toggle: nothing, select: nothing, act: nothing, point: nothing }); // the arrow keys move the focus
    this.facts = {};
    const names = { steps: "steps", calls: "model calls", seconds: "seconds" };
    const facts = Object.entries(names).map(([fact, label]) => {
      this.facts[fact] = el("span", { class: "value" }, "–");
      return el("span", { class: "fact", title: fact === "calls" ? "Network calls" : null }, this.facts[fact], el("span", { class: "name" }, label));
    });
    this.root = el("div", { class: "card", id: `side-${name}`, role: "group", "aria-label": `${title} sampler` },
      this.picker.root, el("div", { class: "facts" }, ...facts), this.board.root);
  }

  show(index) {
    const frame = this.recording?.frames[index];
    if (!frame) return;
    this.board.draw(frame, { final: (place) => this.recording.final(place) });
    this.facts.steps.textContent = `${index}`;
    this.facts.calls.textContent = String(frame.calls);
    this.facts.seconds.textContent = frame.seconds.toFixed(2);
  }

  /** The last step at or before a time. */
  at(seconds) {
    return this.recording.frames.findLastIndex((frame) => frame.seconds <= seconds);
  }

  clear() {
    this.recording = null;
    this.board.draw({ row: [], changed: new Set(), end: null });
    for (const value of Object.values(this.facts)) value.textContent = "–";
  }
}

class CompareView {
  constructor(root, app) {
    this.app = app;
    const { state } = app;
    this.sides = [new Side("left", "left", ownSampler, app), new Side("right", "right", otherSampler, app)];
    this.composer = new Composer({
      id: "compare-text", state, go: () => this.run(), stop: () => this.abort?.abort(),
      label: (text) => (gapsOf(text, app.settings.chosen.dna) ? "Fill with both" : text.trim() ? "Continue with both" : "Write both"),
      model: () => app.settings.chosen,
    });
    const { text, goButton, stopButton } = this.composer;
    const about = "Two ways of writing with the same random number. They run one after the other; the replay shows both at the same time.";
    this.player = new Player({
      show: (index) => this.#show(index), speed: state.get("speed"), label: "Time",
      onspeed: (speed) => state.set({ speed }),
    });
    this.replayCard = el("div", { class: "card replay", hidden: true }, this.player.root, legend());
    root.append(
      el("div", { class: "card composer" },
        el("p", { class: "lead" }, about),
        text,
        el("div", { class: "row" }, goButton, stopButton, el("span", { class: "end" }, layouts(state, (name) => this.#layout(name))))),
      el("div", { class: "columns" }, ...this.sides.map((side) => side.root)),
      this.replayCard,
    );
    this.#layout(state.get("layout"));
    this.#fit();
    const requests = state.request("raced");
    if (Array.isArray(requests) && requests.length === 2) this.run(requests);
  }

  #layout(name) {
    for (const side of this.sides) {
      side.board.layout = name;
      if (side.recording) side.show(this.times ? side.at(this.times[this.player.index]) : side.recording.frames.length - 1);
    }
  }

  #requests() {
    const shared = this.composer.request(this.app.settings.request());
    return this.sides.map((side) => withSampler(shared, side.picker));
  }

  async run(requests = this.#requests()) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    hideNotice();
    this.times = null;
    this.replayCard.hidden = true;
    this.composer.refresh(true);
    for (const side of this.sides) side.clear();
    this.app.state.set({ raced: JSON.stringify(requests) });
    try {
      for (const [index, side] of this.sides.entries()) {
        await collect(requests[index], {
          before: [], signal: abort.signal,
          onframe: (recording) => { side.recording = recording; side.show(recording.frames.length - 1); },
        });
      }
      this.#replay();
    } catch (error) {
      showError(error, () => this.run(requests));
      if (this.abort === abort) this.app.state.set({ raced: "" }); // a link cannot show aborted texts
    } finally {
      if (this.abort === abort) this.composer.refresh(false);
    }
  }

  /** Replays both texts on one clock. */
  #replay() {
    const seconds = this.sides.flatMap((side) => side.recording.frames.map((frame) => frame.seconds));
    this.times = [...new Set(seconds)].sort((a, b) => a - b);
    const stretch = Math.max(1, LEAST_REPLAY / this.times.at(-1));
    this.replayCard.hidden = false;
    this.player.load(this.times.map((time) => time * stretch), this.times.length - 1);
    const results = this.sides.map(({ picker, recording: { last } }) => `${samplerName(picker.select.value)} ${last.calls} calls, ${last.seconds.toFixed(2)} seconds`);
    announce(`Done: ${results.join("; ")}`);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.player.play();
  }

  #show(index) {
    if (!this.times) return;
    const now = this.times[index];
    for (const side of this.sides) side.show(side.at(now));
    this.player.meter.replaceChildren(el("span", {}, "after ", el("b", {}, `${now.toFixed(2)} s`), ` of ${this.times.at(-1).toFixed(2)} s`));
  }

  modelChanged() {
    this.abort?.abort();
    this.#fit();
  }

  /** Clears the boards and fits them to the chosen model. */
  #fit() {
    for (const side of this.sides) {
      side.board.letters = !this.app.settings.chosen.words;
      side.picker.fit(this.app.settings.chosen);
      side.clear();
    }
    this.times = null;
    this.replayCard.hidden = true;
  }

  shown() {
    this.composer.setText(this.app.state.get("text"));
  }

  hidden() {
    this.player.pause();
  }
}
