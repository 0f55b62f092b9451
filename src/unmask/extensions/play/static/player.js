// Controls of the steps: slider, play, pause, speed.

import { el, icon } from "./dom.js";

const SPEEDS = ["0.25", "0.5", "1", "2", "4", "8"];

export class Player {
  /** `show(index)` draws a step, also when play starts or stops; a new speed calls `onspeed`. */
  constructor({ show, speed = "1", onspeed = () => {}, label = "Step" }) {
    this.show = show;
    this.times = [0]; // time of every step, in seconds at speed 1
    this.index = 0;
    this.clock = 0;
    this.playing = false;
    this.live = false; // more steps will arrive
    this.#build(SPEEDS.includes(speed) ? speed : "1", onspeed, label);
    this.#refresh();
  }

  #build(speed, onspeed, label) {
    const button = (name, title, act) =>
      el("button", { type: "button", class: "icon", "aria-label": title, title, onclick: act }, icon(name));
    this.backButton = button("back", "One step back", () => this.step(-1));
    this.playButton = button("play", "Play", () => this.toggle());
    this.forwardButton = button("on", "One step forward", () => this.step(1));
    this.scrubber = el("input", {
      type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": label,
      oninput: () => this.go(Number(this.scrubber.value)),
    });
    this.speed = el(
      "select",
      { class: "speed", "aria-label": "Speed", onchange: () => onspeed(this.speed.value) },
      ...SPEEDS.map((value) => el("option", { value }, `${value}×`)),
    );
    this.speed.value = speed;
    this.meter = el("p", { class: "meter" });
    this.root = el(
      "div",
      { class: "player", role: "group", "aria-label": "Steps", onkeydown: (event) => this.#key(event) },
      el("span", { class: "buttons" }, this.backButton, this.playButton, this.forwardButton),
      this.scrubber,
      this.speed,
      this.meter,
    );
  }

  #key(event) {
    if (event.target === this.speed || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target === this.scrubber) this.toggle();
    else if (event.key === ",") this.step(-1);
    else if (event.key === ".") this.step(1);
    else return;
    event.preventDefault();
  }

  /** Loads other steps; keeps the index if possible. */
  load(times, index = this.index) {
    this.times = times;
    this.go(index, this.playing);
  }

  /** Adds a step. */
  addStep(time) {
    this.times.push(time);
    this.#refresh();
  }

  /** Shows a step; by default playing stops. */
  go(index, playing = false) {
    this.index = Math.max(0, Math.min(index, this.times.length - 1));
    this.clock = this.times[this.index];
    this.playing = playing;
    this.#refresh();
    this.show(this.index);
  }

  step(by) {
    this.go(this.index + by);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.playing) return;
    if (this.index >= this.times.length - 1 && !this.live) this.go(0);
    this.playing = true;
    this.lastTick = performance.now();
    this.#refresh();
    this.show(this.index);
    requestAnimationFrame((now) => this.#tick(now));
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.#refresh();
    this.show(this.index);
  }

  #tick(now) {
    if (!this.playing) return;
    const last = this.times.length - 1;
    this.clock += Math.max(0, now - this.lastTick) / 1000 * Number(this.speed.value);
    this.lastTick = now;
    this.clock = Math.min(this.clock, this.times[last] + (this.live ? 0.02 : 0)); // waits for the next step
    let index = this.index;
    while (index < last && this.times[index + 1] <= this.clock) index += 1;
    if (index !== this.index) {
      this.index = index;
      this.#refresh();
      this.show(index);
    }
    if (index === last && !this.live) this.pause();
    else requestAnimationFrame((next) => this.#tick(next));
  }

  #refresh() {
    const last = this.times.length - 1;
    this.scrubber.max = last;
    this.scrubber.value = this.index;
    this.scrubber.disabled = last === 0;
    this.backButton.disabled = this.index === 0;
    this.forwardButton.disabled = this.index === last;
    this.playButton.disabled = last === 0 && !this.live;
    const name = this.playing ? "Pause" : "Play";
    if (this.playButton.title === name) return;
    this.playButton.title = name;
    this.playButton.setAttribute("aria-label", name);
    this.playButton.replaceChildren(icon(this.playing ? "pause" : "play"));
  }
}

/** Shows the numbers of a step: `["step", "3 of 48", "Sampler steps"], …`. */
export function drawFacts(root, facts) {
  root.replaceChildren(...facts.map(([name, value, title]) => el("span", { title }, `${name} `, el("b", {}, value))));
}
