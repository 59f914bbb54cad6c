// ---------- questions to the model: over the network, or from answers that were recorded into the page
const pageId = Math.random().toString(36).slice(2) + Date.now().toString(36);
const token = new URLSearchParams(location.search).get("token") ?? "";
const DROPPED = Symbol("dropped"); // a newer question replaced it

let prompts = 0; // number of prompts so far
async function ask(kind, place, question, partial) { // answers and errors that arrive after the prompt has changed are dropped
  const promptNumber = prompts;
  try {
    return await (data.live.recorded ? fromRecord(kind, question) : fromServer(kind, place, question, partial));
  } finally {
    if (promptNumber !== prompts) throw DROPPED;
  }
}
async function fromServer(kind, place, question, partial = () => {}) {
  const body = JSON.stringify({ kind, page: pageId, place, ...question });
  const headers = { "content-type": "application/json", "x-headatlas-token": token };
  let response;
  try { response = await fetch("ask", { method: "POST", headers, body }); } catch { lost(); throw DROPPED; }
  if (!response.ok) throw new Error((await response.json()).error);
  try { return await lastOf(response.body, partial); } catch (error) {
    if (error instanceof TypeError) { lost(); throw DROPPED; } // the connection broke
    throw error;
  }
}
async function lastOf(body, partial) { // a line of JSON for each message
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw DROPPED;
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      if ("error" in message) throw new Error(message.error);
      if ("dropped" in message) throw DROPPED;
      if ("result" in message) { reader.cancel(); return message.result; }
      partial(message);
    }
  }
}
const keyOf = (kind, { prompt, heads, layer = 0, head = 0, token: position = -1 }) => {
  const place = { attention: [layer, head], thumbnails: [layer], writes: [layer, head, position] }[kind] ?? [];
  return [kind, data.live.prompts.findIndex((p) => p.prompt === prompt), heads.map(([l, h, s]) => `${l}.${h}.${s}`).join(" "), ...place].join("|");
};
function fromRecord(kind, question) {
  const result = data.live.recorded[keyOf(kind, question)];
  if (result === undefined) throw new Error("This page has recorded answers only, and none for this question. To ask the model, run: headatlas view");
  return result;
}

// ---------- a server that does not answer
let waiting = null;
function lost(why = "The server does not answer. This page resumes when it is back.") {
  $("live-lost").textContent = why;
  $("live-lost").hidden = false;
  waiting ??= setInterval(async () => {
    const answer = await fetch("alive", { headers: { "x-headatlas-token": token } }).catch(() => null);
    if (answer?.status === 403) $("live-lost").textContent = "The server was restarted: open the address that it printed.";
    if (!answer?.ok) return;
    clearInterval(waiting);
    waiting = null;
    $("live-lost").hidden = true;
    prompted();
  }, 1000);
}

// ---------- decoding of packed numbers
const HALF = new Float32Array(65536);
for (let i = 0; i < 65536; i++) {
  const sign = i & 0x8000 ? -1 : 1, exponent = (i >> 10) & 31, fraction = i & 1023;
  HALF[i] = sign * (exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
}
const halves = (text) => Float32Array.from(new Uint16Array(bytes(text)), (v) => HALF[v]);
