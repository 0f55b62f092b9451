// Requests a text from the server and records its steps.

import { stream } from "./api.js";
import { gapsIn, Recording } from "./recording.js";

export const PACE = 0.09; // seconds of a step at speed 1

/** A request with the sampler and the steps of a picker; an empty field gets the server's default. */
export function withSampler(request, picker) {
  const full = { ...request, sampler: picker.spec };
  if (picker.sampler.steps && picker.steps.value !== "") full.steps = Math.round(Number(picker.steps.value));
  return full;
}

/** The recording of a text; calls `onframe(recording)` at the start and at each step. */
export async function collect(request, { before, signal, onframe }) {
  const recording = new Recording(before);
  for await (const event of stream(request, signal)) {
    signal.throwIfAborted(); // drop steps that arrived before the abort
    recording.add(event);
    if (event.kind !== "end") onframe(recording);
  }
  return recording;
}

/** The numbers below a text: name, value and technical term; the number of all steps is not known while it grows. */
export function facts(recording, index, growing) {
  const frame = recording.frames[index];
  const { calls, t, seconds } = frame;
  if (t === null) return [];
  return [
    ["step", growing ? String(index) : `${index} of ${recording.frames.length - 1}`, "Sampler steps that changed the text; the others are not shown"],
    ["gaps", String(gapsIn(frame)), `Masked tokens; the diffusion time t is ${t.toFixed(2)}`],
    ["calls", String(calls), "Network calls: the model reads the whole text once in each"],
    ["time", `${seconds.toFixed(2)} s`, "Seconds since the start"],
  ];
}

/** Network calls and seconds of the whole text. */
export function cost(recording) {
  const { calls, seconds } = recording.last;
  return `${calls} network calls, ${seconds.toFixed(2)} seconds`;
}
