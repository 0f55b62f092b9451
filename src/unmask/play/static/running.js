// One text on its way from the server to a board.

import { stream } from "./api.js";
import { Recording } from "./recording.js";

export const PACE = 0.09; // seconds that a step is looked at, at speed 1

/** A question with the sampler and the steps of a picker; empty fields are left to the server. */
export function asking(question, picker) {
  const asked = { ...question, sampler: picker.spec };
  if (picker.sampler.steps && picker.steps.value !== "") asked.steps = Math.round(Number(picker.steps.value));
  return asked;
}

/** Collects a text; `onframe(recording)` is called at every step, also at the empty one. */
export async function collect(question, { before, signal, onframe }) {
  const recording = new Recording(before);
  for await (const event of stream(question, signal)) {
    signal.throwIfAborted(); // steps that had arrived by then are nobody's
    recording.add(event);
    if (event.kind !== "end") onframe(recording);
  }
  return recording;
}

/** The numbers below a text. */
export function facts(recording, index) {
  const { calls, t, seconds } = recording.frames[index];
  const known = [
    ["step", `${index} of ${recording.frames.length - 1}`],
    ["calls", String(calls)],
    ["seconds", seconds.toFixed(2)],
  ];
  return t === null ? [] : [...known, ["t", t.toFixed(2)]];
}

/** The last frame is what the text is; its numbers are what it cost. */
export function cost(recording) {
  const { calls, seconds } = recording.last;
  return `${calls} network calls, ${seconds.toFixed(2)} seconds`;
}
