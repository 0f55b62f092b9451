// Requests to the server of this page.

/** An error with a one-line message; `retryable` is true if the same request may succeed later. */
export class Failure extends Error {
  constructor(message, retryable) {
    super(message);
    this.retryable = retryable;
  }
}

const UNREACHABLE = "The server is not reachable: check that its command is still running.";
const INTERRUPTED = "The connection ended before the text was complete.";

/** The response to a request with a JSON body, or without a body; throws a Failure. */
export async function send(path, body, signal) {
  const options = body === undefined ? { signal } : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(UNREACHABLE, true);
  }
  if (!response.ok) throw new Failure(await errorMessage(response), response.status === 429 || response.status >= 500);
  return response;
}

/** The server's error message, or one made from the status. */
async function errorMessage(response) {
  const body = await response.json().catch(() => ({}));
  const detail = Array.isArray(body.detail) ? body.detail[0]?.msg : body.detail;
  const message = body.error?.message ?? detail ?? `The server returned status ${response.status}.`;
  const wait = response.headers.get("Retry-After");
  return wait && response.status === 429 ? `${message} Try again in ${wait} s.` : message;
}

export async function menu() {
  return (await send("/play/menu")).json();
}

export async function tokens(request, signal) {
  return (await send("/play/tokens", request, signal)).json();
}

export async function guesses(request, signal) {
  return (await send("/play/guesses", request, signal)).json();
}

export async function style(request, signal) {
  return (await send("style", request, signal)).json();
}

/** The events of a text; throws a Failure if the stream ends early. */
export async function* stream(request, signal) {
  const response = await send("/play/stream", request, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
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
        const event = parseEvent(part);
        if (!event) continue;
        if (event.error) throw new Failure(event.error.message ?? String(event.error), true);
        ended ||= event.kind === "end";
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!ended) throw new Failure(INTERRUPTED, true);
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(INTERRUPTED, true);
  }
}

/** The content of a server-sent event, or null for a comment that keeps the connection open. */
function parseEvent(part) {
  const lines = part.split("\n").filter((line) => line.startsWith("data:"));
  const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
  return data && data !== "[DONE]" ? JSON.parse(data) : null;
}
