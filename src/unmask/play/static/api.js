// Requests to the server of this page.

/** An error message in one line; `passing` if the same request may succeed later. */
export class Failure extends Error {
  constructor(message, passing) {
    super(message);
    this.passing = passing;
  }
}

const GONE = "The server is not reachable: check that unmask play is still running.";
const CUT = "The connection ended before the text was complete.";

async function asked(path, body, signal) {
  const request = body === undefined ? { signal } : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  let answer;
  try {
    answer = await fetch(`/play/${path}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(GONE, true);
  }
  if (!answer.ok) throw new Failure(await complaint(answer), answer.status === 429 || answer.status >= 500);
  return answer;
}

/** The server's error message, or one made from the status. */
async function complaint(answer) {
  const body = await answer.json().catch(() => ({}));
  const detail = Array.isArray(body.detail) ? body.detail[0]?.msg : body.detail;
  const message = body.error?.message ?? detail ?? `The server returned status ${answer.status}.`;
  const wait = answer.headers.get("Retry-After");
  return wait && answer.status === 429 ? `${message} Try again in ${wait} s.` : message;
}

export async function menu() {
  return (await asked("menu")).json();
}

export async function tokens(question, signal) {
  return (await asked("tokens", question, signal)).json();
}

export async function guesses(question, signal) {
  return (await asked("guesses", question, signal)).json();
}

/** The events of a text; throws a Failure if the stream ends early. */
export async function* stream(question, signal) {
  const answer = await asked("stream", question, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  try {
    while (!ended) {
      const { value, done } = await read(reader);
      if (done) break;
      rest += value;
      const parts = rest.split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = parsed(part);
        if (!event) continue;
        if (event.error) throw new Failure(event.error.message ?? String(event.error), true);
        ended ||= event.kind === "end";
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!ended) throw new Failure(CUT, true);
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(CUT, true);
  }
}

/** The content of a server-sent event, or null for a comment that keeps the connection open. */
function parsed(part) {
  const lines = part.split("\n").filter((line) => line.startsWith("data:"));
  const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
  return data && data !== "[DONE]" ? JSON.parse(data) : null;
}
