// ---------- live: the current question. `heads` holds the scale of every switched head.
const current = { prompt: "", target: "", other: "", heads: new Map(), token: null };
const answers = {}; // from the model: before, after, attention, …
const undone = { past: [], future: [] };
const switched = () => [...current.heads].filter(([, s]) => s !== 1).sort(([a], [b]) => a - b).map(([index, s]) => [Math.floor(index / H), index % H, s]);
const visible = (text) => printable(text.replaceAll("\n", "↵").replaceAll("\t", "⇥")).replace(/^ | $/g, "·") || "∅";
function question(extra = {}) {
  const targets = { target: answers.before?.target.ids ?? current.target, other: answers.before?.other?.ids ?? current.other };
  return { prompt: current.prompt, heads: switched(), ...targets, ...extra };
}
async function attempt(work, failed = () => {}) { // shows errors under the prompt; dropped questions are ignored
  try { await work(); return true; } catch (error) {
    if (error === DROPPED) return false;
    $("live-message").textContent = error.message;
    failed();
    return false;
  }
}
const NUMBERS = ["live-next", "live-answer", "live-continuation"];
const dimNumbers = (on) => NUMBERS.forEach((id) => $(id).classList.toggle("waiting", on));
function clearNumbers() { // after an error: numbers of another question must not stay
  NUMBERS.forEach((id) => $(id).replaceChildren());
  dimNumbers(false);
  for (const kind of ["direct", "slope"]) showMap(kind, null);
  for (const id of ["live-writes", "live-thumbnails"]) $(id).replaceChildren();
  delete answers.after;
  delete answers.attention;
  showAttention();
  card();
}

// ---------- a new prompt, or answer
let typing = 0, turn = 0;
function typed() {
  clearTimeout(typing);
  typing = setTimeout(prompted, 150);
}
function prompted() {
  const { prompt } = current;
  turn++;
  [current.prompt, current.target, current.other] = ["prompt", "target", "other"].map((n) => $(`live-${n}`).value);
  if (prompt !== current.prompt) current.token = null;
  if (prompt !== current.prompt && data.live.recorded) current.heads.clear(); // recorded heads differ between prompts
  for (const name of Object.keys(answers)) delete answers[name];
  prompts++;
  maps.exact.request = null;
  for (const kind of Object.keys(maps)) showMap(kind, null);
  $("live-control-result").replaceChildren();
  $("live-message").textContent = "";
  keep();
  $("live-steps").hidden = Boolean(current.prompt);
  if (!current.prompt) { $("live-results").hidden = true; return; }
  const failed = () => { clearNumbers(); $("live-results").hidden = true; };
  attempt(async () => {
    dimNumbers(true);
    const before = await ask("next", "prompt", question({ heads: [], target: current.target, other: current.other }));
    answers.before = before;
    if (data.live.recorded) showRecorded();
    $("live-results").hidden = false;
    showText();
    changed();
  }, failed);
}

// ---------- heads switched
function switchHeads(heads) { // [[index, scale], …]; scale 1 switches back
  undone.past.push(new Map(current.heads));
  undone.future = [];
  for (const [index, scale] of heads) if (scale === 1) current.heads.delete(index); else current.heads.set(index, scale);
  changed();
}
function travel(from, to) {
  if (!from.length) return;
  to.push(new Map(current.heads));
  current.heads = from.pop();
  changed();
}
async function changed() {
  const mine = ++turn;
  keep();
  labelMaps();
  $("live-control-result").replaceChildren();
  showHeads();
  for (const view of views) if (!view.stale) view.mark();
  card();
  if (!answers.before) return;
  await attempt(async () => {
    dimNumbers(true);
    const heads = switched();
    const after = heads.length ? await ask("next", "after", question()) : null;
    if (mine !== turn) return;
    answers.after = after;
    showNext();
    askHead();
    askMaps();
    if (data.live.recorded && !heads.length) askExact();
    askContinuations();
  }, () => { if (mine === turn) clearNumbers(); });
}
function showHeads() {
  const chip = ([l, h, s]) => {
    const index = l * H + h, off = el("button", { type: "button", title: "switch back", "aria-label": `${nameOf(index)}: switch back`, onclick: () => switchHeads([[index, 1]]) }, "×");
    const name = el("button", { type: "button", onclick: () => select(index) }, nameOf(index) + (s ? ` × ${s}` : ""));
    return el("span", { className: "chip" }, name, off);
  };
  const chips = switched().map(chip), many = chips.length > 40;
  $("live-heads").replaceChildren(...(many ? chips.slice(0, 40) : chips), many ? `and ${chips.length - 40} more` : chips.length ? "" : el("span", { className: "muted" }, "None: the model is unchanged."));
  $("live-undo").disabled = !undone.past.length;
  $("live-redo").disabled = !undone.future.length;
  $("live-clear").disabled = $("live-control").disabled = !chips.length;
}

// ---------- what comes next
function showNext() {
  const { before, after } = answers;
  const bar = (p, name) => el("span", { className: `p ${name}` }, el("i", { style: `width:${p * 100}%` }), p < 0.0005 ? p.toExponential(0) : p.toFixed(3));
  const pick = (t) => el("button", { type: "button", title: "follow this answer", onclick: () => { $("live-target").value = t.text; prompted(); } }, visible(t.text));
  const line = (t) => ({ cells: [pick(t), bar(t.before, "before"), ...(after ? [bar(t.p, "after")] : [])], current: before.target.ids.length === 1 && before.target.ids[0] === t.id });
  $("live-next").replaceChildren(table("", ["Token", "unchanged", ...(after ? ["switched"] : [])], (after ?? before).next.map(line), [1, 2]));
  dimNumbers(false);
  const value = (answer) => answer.target.log_p - (answer.other?.log_p ?? 0);
  const name = `log P(${before.target.tokens.map(visible).join("|")})${before.other ? ` − log P(${before.other.tokens.map(visible).join("|")})` : ""}`;
  const change = after ? [` → `, el("b", {}, number(value(after))), ` (${number(value(after) - value(before))})`] : [];
  $("live-answer").replaceChildren(`${name}: `, el("b", {}, number(value(before))), ...change);
  $("live-effect")?.replaceChildren(...effect());
}
function effect() { // for the card, which stays visible: the likeliest token, before and after
  if (!answers.after) return [];
  const likeliest = (p) => answers.after.next.reduce((a, b) => (p(b) > p(a) ? b : a)), token = (t, p) => [el("b", {}, visible(t.text)), ` ${p.toFixed(2)}`];
  const before = likeliest((t) => t.before), after = likeliest((t) => t.p);
  return ["Next token: ", ...token(before, before.before), " → ", ...token(after, after.p)];
}
async function askContinuations() {
  const box = (name, title) => {
    const text = el("span", {}, "…"), root = el("div", { className: `said ${name}` }, el("b", {}, `${title}: `), text);
    return { root, text };
  };
  const boxes = [["before", "unchanged", []], ...(switched().length ? [["after", "switched", switched()]] : [])];
  const made = boxes.map(([name, title]) => box(name, title));
  if (answers.continuation !== undefined) made[0].text.textContent = answers.continuation;
  $("live-continuation").replaceChildren(...made.map((m) => m.root));
  boxes.forEach(([name, , heads], i) => {
    if (name === "before" && answers.continuation !== undefined) return;
    const show = (text) => (made[i].text.textContent = text || "(it ends here)");
    attempt(async () => {
      const { text } = await ask("continuation", name, question({ heads }), (m) => show(m.partial.text));
      show(text);
      if (name === "before") answers.continuation = text;
    });
  });
}

// ---------- the maps
const maps = { direct: { title: "Adds to the logit" }, slope: { title: "Lost without it, by gradient" }, exact: { title: "Lost without it, measured" } };
function makeMaps() {
  for (const [kind, map] of Object.entries(maps)) {
    const limit = () => map.values.reduce((m, v) => (Number.isNaN(v) ? m : Math.max(m, Math.abs(v))), 1e-9);
    const z = (index) => (!map.values ? 0.5 : missing(map.values[index]) ? null : 0.5 + (0.5 * map.values[index]) / limit());
    const tip = (index) => [nameOf(index), map.values ? `${map.title}: ${number(map.values[index])}` : "not measured yet", ...(map.label.textContent ? [map.label.textContent] : [])];
    map.view = grid($("live-maps"), { title: map.title, label: `Map of heads: ${map.title}`, z, colours: () => plain(PALETTES.diverging), tip, height: 430, notes: ["", " "] });
    map.view.steady = true;
    [map.label, map.note] = map.view.root.querySelectorAll(".detail");
    map.label.classList.add("switches");
    if (kind === "exact") {
      map.button = el("button", { type: "button", id: "live-measure", onclick: measure }, "Measure");
      map.view.root.insertBefore(map.button, map.view.root.lastChild);
    }
  }
}
function showMap(kind, result, heads = []) { // heads: those that were switched when it was measured
  const map = maps[kind];
  map.values = result && floats(result.map);
  map.heads = heads;
  map.best = result ? range(N).filter((index) => !missing(map.values[index])).sort((a, b) => map.values[b] - map.values[a]).slice(0, 3) : [];
  map.view.root.classList.toggle("waiting", !result);
  showBest(map);
  labelMaps();
  stale(map.view);
}
function showBest(map) {
  const button = (index) => el("button", { type: "button", onclick: () => select(index) }, `${nameOf(index)} ${number(map.values[index])}`);
  map.note.replaceChildren(...(map.best.length ? map.best.map(button) : [" "]));
}
function inWords(heads) {
  if (!heads.length) return "all heads on";
  const describe = ([l, h, s]) => `${nameOf(l * H + h)} ${s ? `× ${s}` : "off"}`;
  return `with ${heads.length > 3 ? `${heads.length} heads switched` : heads.map(describe).join(", ")}`;
}
const isCurrent = (map) => String(map.heads) === String(switched());
function labelMaps() { // the model that a map is of: unchanged, with heads switched, or before the last switch
  for (const map of Object.values(maps)) {
    const switches = map.values && (map.heads.length || !isCurrent(map)) ? inWords(map.heads) : "";
    map.label.textContent = switches && !isCurrent(map) ? `before the switch: ${switches}` : switches;
  }
  const { button, request, values } = maps.exact;
  button.hidden = Boolean(data.live.recorded) || Boolean(values && isCurrent(maps.exact));
  button.disabled = request?.heads === String(switched());
  button.textContent = values ? "Measure again" : "Measure";
}
function askMaps() {
  for (const kind of ["direct", "slope"]) {
    const heads = switched();
    attempt(async () => showMap(kind, await ask(kind, kind, question()), heads), () => showMap(kind, null));
  }
}
async function askExact() { // returns whether it was measured
  const map = maps.exact, heads = switched(), request = { heads: String(heads) };
  map.request = request;
  labelMaps();
  const measured = await attempt(async () => {
    const result = await ask("exact", "exact", question(), (m) => (map.note.textContent = `${Math.round(m.progress * 100)} %`));
    showMap("exact", result, heads);
  });
  if (map.request !== request) return measured; // asked again meanwhile
  map.request = null;
  showBest(map);
  labelMaps();
  return measured;
}
async function measure() {
  if (await askExact()) select(maps.exact.best[0]);
}

// ---------- comparison with random heads
function askControl() {
  const say = (text) => ($("live-control-state").textContent = text);
  $("live-control").disabled = true;
  attempt(async () => {
    const result = await ask("control", "control", question(), (m) => say(`${Math.round(m.progress * 100)} %`));
    showControl(result);
  }).then(() => { say(""); $("live-control").disabled = !switched().length; });
}
function showControl({ effect, random, p, all, matched }) {
  if (!random.length) {
    $("live-control-result").replaceChildren(el("p", {}, "All heads of these layers are switched alike, so there are no others to compare with."));
    return;
  }
  const values = [...random, effect, 0], low = Math.min(...values), high = Math.max(...values), place = (v) => `left:${((v - low) / (high - low || 1)) * 100}%`;
  const mean = random.reduce((a, b) => a + b, 0) / random.length, asLow = random.filter((r) => r <= effect).length;
  const n = switched().length, heads = several(n, "head"), choices = `sets of heads like ${n === 1 ? "it" : "them"}`;
  const neighbours = all && n === 1 && matched.endsWith("by layer only"); // with few heads, all others of the layer are compared
  const others = neighbours ? `the ${random.length} other heads of its layer` : `${all ? "all " : ""}${random.length} ${all ? "other" : "random"} ${choices}`;
  const words = `Your ${heads}: ${number(effect)}. ${others[0].toUpperCase()}${others.slice(1)}: ${number(mean)} on average, ranging from ${number(Math.min(...random))} to ${number(Math.max(...random))}. ${asLow ? `${asLow} of them lower${asLow === 1 ? "s" : ""}` : "None of them lowers"} the answer as much: p = ${number(p)}.`;
  const few = random.length < 19 ? ` With so few draws, p cannot be below ${number(1 / (random.length + 1))}.` : "";
  const dots = el("div", { className: "dots", role: "img", "aria-label": words }, ...random.map((r) => el("i", { style: place(r) })), el("i", { className: "own", style: place(effect) }));
  const apart = [low, high, 0].filter((v, i, all) => all.slice(0, i).every((w) => Math.abs(v - w) > 0.08 * (high - low))); // labels that do not overlap
  dots.append(...apart.map((v) => el("span", { style: place(v) }, number(v))));
  $("live-control-result").replaceChildren(dots, el("p", {}, words + few), muted(`Change of log P of the answer. Grey: random heads, ${matched}; orange: your heads.`));
  answers.control = { effect, random, p };
}

// ---------- the selected head: its attention, what it writes
const others = (index) => switched().filter(([l, h]) => l * H + h !== index); // a switched head is shown as if it were on
function askHead() {
  const index = state.selected;
  $("live-head").hidden = index === null;
  if (index === null) $("live-head-title").textContent = "No head selected: measure, or click a head in a map";
  if (index === null || !answers.before) return;
  const layer = Math.floor(index / H), head = index % H;
  $("live-head-title").textContent = `Head ${nameOf(index)} on this prompt`;
  $("live-layer-title").textContent = `All heads of layer ${layer}`;
  const say = (text) => ($("live-attention-state").textContent = text), heads = others(index);
  ask("attention", "attention", question({ layer, head, heads })).then((result) => {
    answers.attention = { index, weights: halves(result.attention), values: result.values && floats(result.values) };
    $("live-weighted").disabled = !result.values;
    say("");
    showAttention();
  }).catch((error) => {
    if (error === DROPPED) return;
    delete answers.attention;
    say(error.message);
    showAttention();
  });
  askWrites();
  ask("thumbnails", "thumbnails", question({ layer, heads })).then((r) => showThumbnails(layer, r)).catch(() => $("live-thumbnails").replaceChildren());
}
function askWrites() {
  const index = state.selected, layer = Math.floor(index / H), head = index % H;
  if (index === null) return;
  ask("writes", "writes", question({ layer, head, heads: others(index), token: current.token ?? -1 })).then((result) => {
    const rows = range(result.raised.length).map((i) => {
      const [up, down] = [result.raised[i], result.lowered[i]];
      return [el("code", {}, visible(up.text)), number(up.change), el("code", {}, visible(down.text)), number(down.change)];
    });
    const title = `What ${nameOf(index)} ${current.heads.has(index) ? "would write" : "writes"} at “${visible(answers.before.tokens[result.token])}”: logits it raises and lowers directly`;
    $("live-writes").replaceChildren(table(title, ["raises", "", "lowers", ""], rows, [1, 3]));
  }).catch((error) => { if (error !== DROPPED) $("live-writes").replaceChildren(muted(error.message)); });
}
function showText() {
  const span = (text, i) => el("span", { onmouseenter: () => point(i), onclick: () => { current.token = current.token === i ? null : i; point(null); keep(); askWrites(); } }, text.split("\n").map(printable).join("↵\n") || "∅");
  $("live-text").replaceChildren(...answers.before.tokens.map(span));
}
function weights() { // [query, key] as shown, and the largest of a row
  const { weights: w, values } = answers.attention, n = answers.before.tokens.length;
  if (!$("live-weighted").checked || !values) return { weight: (q, k) => w[q * n + k], rowMax: () => 1 };
  const rowMax = (q) => range(n).reduce((m, k) => Math.max(m, w[q * n + k] * values[k]), 1e-9);
  return { weight: (q, k) => w[q * n + k] * values[k], rowMax };
}
function point(i) { // highlight the tokens that token i attends to, and those that attend to it
  if (!answers.before) return; // another prompt is being computed
  const shown = i ?? current.token ?? answers.before.tokens.length - 1, spans = $("live-text").children;
  const a = answers.attention && weights(), most = a?.rowMax(shown);
  for (let j = 0; j < spans.length; j++) {
    const looks = a && j <= shown ? a.weight(shown, j) / most : 0, seen = a && j > shown ? a.weight(j, shown) / a.rowMax(j) : 0;
    spans[j].style.background = looks > 0.01 ? `rgba(11,92,173,${Math.min(1, looks) * 0.75})` : "";
    spans[j].style.boxShadow = seen > 0.02 ? `inset 0 -3px rgba(234,88,12,${Math.min(1, seen)})` : "";
    spans[j].classList.toggle("kept", j === current.token);
    spans[j].classList.toggle("pointed", j === shown && j !== current.token);
    if (a) spans[j].title = j <= shown ? `${number(a.weight(shown, j))} from ${visible(answers.before.tokens[shown])}` : `${number(a.weight(j, shown))} to ${visible(answers.before.tokens[shown])}`;
  }
}
function showAttention() {
  if (!answers.before) return;
  point(null);
  const canvas = $("live-matrix"), n = answers.before.tokens.length, pen = canvas.getContext("2d");
  Object.assign(canvas, { width: n, height: n });
  canvas.hidden = !answers.attention;
  if (!answers.attention) return;
  const a = weights(), colours = shades(PALETTES.viridis).map((c) => c.match(/\d+/g).map(Number)), image = pen.createImageData(n, n);
  const most = $("live-weighted").checked ? range(n).reduce((m, q) => Math.max(m, a.rowMax(q)), 0) : 1;
  for (let q = 0; q < n; q++) for (let k = 0; k <= q; k++) {
    const [r, g, b] = colours[Math.max(0, Math.min(255, Math.round((a.weight(q, k) / most) ** 0.6 * 255)))]; // so that small values are visible
    image.data.set([r, g, b, 255], (q * n + k) * 4);
  }
  pen.putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", `Attention of ${nameOf(answers.attention.index)}: ${n} × ${n} tokens.`);
}
function overMatrix(event) {
  if (!answers.attention) return;
  const n = answers.before.tokens.length, box = $("live-matrix").getBoundingClientRect();
  const [k, q] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((v) => Math.min(n - 1, Math.max(0, Math.floor(v * n))));
  if (k > q) { $("tip").hidden = true; return; }
  showTip([`${visible(answers.before.tokens[q])} → ${visible(answers.before.tokens[k])}`, `${$("live-weighted").checked ? "|αv|" : "attention"} ${number(weights().weight(q, k))}`, `tokens ${q} and ${k}`], event);
  point(q);
}
function showThumbnails(layer, { size, heads }) {
  const colours = shades(PALETTES.viridis).map((c) => c.match(/\d+/g).map(Number));
  const small = (text, head) => {
    const index = layer * H + head, canvas = el("canvas", { width: size, height: size, "aria-hidden": "true" });
    const pen = canvas.getContext("2d"), image = pen.createImageData(size, size), values = new Uint8Array(bytes(text));
    values.forEach((v, i) => image.data.set([...colours[Math.round((v / 255) ** 0.6 * 255)], i % size <= Math.floor(i / size) ? 255 : 0], i * 4));
    pen.putImageData(image, 0, 0);
    return el("button", { type: "button", "aria-pressed": String(index === state.selected), onclick: () => select(index) }, canvas, nameOf(index));
  };
  $("live-thumbnails").replaceChildren(...heads.map(small));
}

// ---------- sets of heads
function fillSets() {
  const { kv } = data.live;
  const groups = data.groups.map((g) => [g.title, g.charts.map((c) => [c, `${words(data.charts[c].subject)}: highest by ${g.title}`])]);
  fill($("live-set"), [...groups, ["Around the selected head", [["layer", "its layer"], ["kv", `its key-value group (${H / kv} heads)`]]]]);
  suggest();
}
const aroundNone = () => ($("live-add").disabled = !data.charts[$("live-set").value] && state.selected === null); // sets around the selected head need one
function suggest() { // the number of heads in the map's test, else those above chance, else 8
  const chart = data.charts[$("live-set").value];
  $("live-count").disabled = !chart;
  aroundNone();
  if (!chart) return;
  const tested = data.tests.find((t) => t.chart !== null && data.charts[t.chart] === chart);
  $("live-count").value = tested?.heads || Math.min(chart.above?.length || 8, 32);
}
function pickedSet() {
  const name = $("live-set").value, chart = data.charts[name], layer = Math.floor((state.selected ?? 0) / H), group = H / data.live.kv;
  if (chart) return places(chart).slice(0, Math.max(1, Number($("live-count").value) || 1));
  const first = name === "kv" ? Math.floor(((state.selected ?? 0) % H) / group) * group : 0;
  return range(name === "kv" ? group : H).map((i) => layer * H + first + i);
}

// ---------- sharing: the fragment of the address holds the question
function keep() {
  const { prompt, target, other, token } = current, tab = document.documentElement.dataset.tab;
  const text = JSON.stringify({ prompt, target, other, token, heads: switched(), selected: state.selected, tab });
  try { history.replaceState(null, "", `#live=${encodeURIComponent(text)}`); } catch { /* some browsers forbid it for files */ }
}
function restored() { // the state in the address, as far as it is valid
  let then = {};
  try { then = JSON.parse(decodeURIComponent(location.hash.match(/^#live=(.*)$/s)?.[1] ?? "%7B%7D")) ?? {}; } catch { /* not a fragment of this page */ }
  const text = (v) => (typeof v === "string" ? v : ""), whole = (v, n) => Number.isInteger(v) && v >= 0 && v < n;
  const heads = (Array.isArray(then.heads) ? then.heads : []).filter((h) => Array.isArray(h) && whole(h[0], N / H) && whole(h[1], H) && h[2] >= 0 && h[2] <= 2);
  return { prompt: text(then.prompt), target: text(then.target), other: text(then.other), token: whole(then.token, 1e6) ? then.token : null,
    heads: new Map(heads.map(([l, h, s]) => [l * H + h, Number(s)])), selected: whole(then.selected, N) ? then.selected : null, tab: then.tab === "atlas" ? "atlas" : "live" };
}
function restore() {
  const then = restored();
  for (const name of ["prompt", "target", "other"]) $(`live-${name}`).value = then[name];
  current.prompt = then.prompt;
  Object.assign(current, { heads: then.heads, token: then.token });
  undone.past = [];
  undone.future = [];
  if (data.live.recorded && !current.prompt) [$("live-prompt").value, $("live-target").value] = [data.live.prompts[0].prompt, data.live.prompts[0].target];
  showTab(then.tab);
  select(then.selected, false);
  prompted();
}
const copied = (text, what) => navigator.clipboard.writeText(text).then(() => `${what} copied.`, () => "The browser does not allow this page to copy.").then((say) => ($("live-share-state").textContent = say));
function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function asJson() {
  const { before, after, control, attention } = answers;
  const head = attention && { head: nameOf(attention.index), tokens: before.tokens, attention: range(before.tokens.length).map((q) => Array.from(attention.weights.slice(q * before.tokens.length, q * before.tokens.length + q + 1))) };
  const mapValues = Object.fromEntries(Object.entries(maps).filter(([, m]) => m.values).map(([k, m]) => [k, range(N / H).map((l) => Array.from(m.values.slice(l * H, l * H + H), (v) => (missing(v) ? null : v)))]));
  const switches = Object.fromEntries(Object.keys(mapValues).map((k) => [k, maps[k].heads]));
  const all = { model: data.model, prompt: current.prompt, switched: switched(), before, after: after ?? null, control: control ?? null, maps: mapValues, maps_switched: switches, ...head };
  save("headatlas.json", new Blob([JSON.stringify(all, null, 1)], { type: "application/json" }));
}
function asPicture() { // prompt, next tokens before and after, the head's attention
  const { before, after } = answers, canvas = el("canvas", { width: 1600, height: 900 }), pen = canvas.getContext("2d");
  const write = (text, x, y, size = 22, colour = css("--text")) => { pen.fillStyle = colour; pen.font = `${size}px ${css("--font")}`; pen.fillText(text, x, y); };
  pen.fillStyle = css("--panel");
  pen.fillRect(0, 0, 1600, 900);
  write(`HeadAtlas: ${data.model}`, 40, 55, 28);
  write(current.prompt.length > 110 ? `…${current.prompt.slice(-110)}` : current.prompt, 40, 100);
  write(switched().length ? `switched: ${switched().slice(0, 12).map(([l, h, s]) => `L${l}.H${h}${s ? ` × ${s}` : ""}`).join(", ")}${switched().length > 12 ? " …" : ""}` : "unchanged", 40, 138, 20, css("--muted"));
  [["unchanged", before, "--accent", 40], ...(after ? [["switched", after, "--top", 430]] : [])].forEach(([title, answer, colour, x]) => {
    write(title, x, 195, 20, css(colour));
    answer.next.forEach((t, i) => {
      pen.globalAlpha = 0.3; pen.fillStyle = css(colour); pen.fillRect(x, 212 + i * 44, 340 * t.p, 34); pen.globalAlpha = 1;
      write(`${visible(t.text)}  ${t.p.toFixed(3)}`, x + 8, 237 + i * 44, 20);
    });
  });
  if (answers.attention) {
    pen.imageSmoothingEnabled = false;
    pen.drawImage($("live-matrix"), 860, 210, 660, 660);
    write(`Attention of ${nameOf(answers.attention.index)}`, 860, 195, 20);
  }
  canvas.toBlob((blob) => save("headatlas.png", blob));
}

// ---------- the tab
function showTab(name) {
  document.documentElement.dataset.tab = name;
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.name === name));
}
function canSwitch(index) {
  const layer = Math.floor(index / H), { recorded, without } = data.live;
  return !without.includes(layer) && (!recorded || keyOf("next", { prompt: current.prompt, heads: [[layer, index % H, 0]] }) in recorded);
}
function fromDisk() { // a recorded page cannot answer other questions
  for (const name of ["prompt", "target", "other"]) $(`live-${name}`).readOnly = true;
  $("live-switching").querySelectorAll("label, #live-add").forEach((e) => (e.hidden = true));
  $("live-recorded").hidden = false;
}
function showRecorded() {
  const mine = Object.keys(data.live.recorded).map((k) => k.split("|")).filter(([kind, i, heads]) => kind === "next" && heads && data.live.prompts[i].prompt === current.prompt);
  const here = mine.map(([, , heads]) => heads.split(".").map(Number)).map(([l, h]) => l * H + h), button = (index) => el("button", { type: "button", onclick: () => select(index) }, nameOf(index));
  $("live-recorded").replaceChildren(el("span", { className: "muted" }, "Recorded for this prompt:"), ...here.map(button));
  if (here.length && !here.includes(state.selected)) select(here[0], false);
}
Object.assign(live, {
  toggle: (index) => {
    if (!canSwitch(index)) return;
    const others = data.live.recorded ? [...current.heads.keys()].filter((a) => a !== index).map((a) => [a, 1]) : []; // only single heads were recorded
    switchHeads([...others, [index, current.heads.has(index) ? 1 : Number($("live-scale").value)]]);
  },
  crosses: (byLayer) => switched().flatMap(([l, h]) => cross(byLayer ? l : h, byLayer ? h : l)),
  button: (index) => [el("p", { className: "row" }, el("button", { type: "button", id: "live-toggle", disabled: !canSwitch(index), onclick: () => live.toggle(index) }, current.heads.has(index) ? `Switch ${nameOf(index)} on again` : `Switch off ${nameOf(index)}`), el("span", { id: "live-effect", className: "detail" }, ...effect()))],
});
function cross(x, y) {
  const line = (sign, color, width) => ({ type: "line", xsizemode: "pixel", ysizemode: "pixel", xanchor: x, yanchor: y, x0: -4, x1: 4, y0: -4 * sign, y1: 4 * sign, line: { color, width } });
  return [line(1, "#000000", 3.5), line(-1, "#000000", 3.5), line(1, "#ffffff", 1.5), line(-1, "#ffffff", 1.5)];
}
live.start = () => {
  const tabs = [["live", "Try a prompt"], ["atlas", "Atlas"]];
  $("tabs").hidden = false;
  $("tabs").replaceChildren(...tabs.map(([name, title]) => {
    const button = el("button", { type: "button", role: "tab", onclick: () => { showTab(name); keep(); scrollTo(0, 0); } }, title);
    button.dataset.name = name;
    return button;
  }));
  $("contents").addEventListener("click", (e) => { // the fragment holds the state
    const to = e.target.getAttribute?.("href");
    if (to) { e.preventDefault(); $(to.slice(1)).scrollIntoView(); }
  });
  showTab("live");
  makeMaps();
  fillSets();
  showHeads();
  for (const { title, prompt, target, note } of data.live.prompts) {
    const use = () => { Object.assign($("live-prompt"), { value: prompt }); $("live-target").value = target; $("live-other").value = ""; prompted(); $("live-note").textContent = note; };
    $("live-examples").append(el("button", { type: "button", title: note, onclick: use }, title));
  }
  for (const name of ["prompt", "target", "other"]) $(`live-${name}`).addEventListener("input", typed);
  if (data.live.recorded) fromDisk();
  $("live-set").addEventListener("change", suggest);
  $("live-scale").addEventListener("input", (e) => ($("live-scale-value").textContent = e.target.value));
  $("live-scale").addEventListener("change", (e) => { if (current.heads.has(state.selected)) switchHeads([[state.selected, Number(e.target.value)]]); });
  const clicks = {
    add: () => switchHeads(pickedSet().map((index) => [index, Number($("live-scale").value)])), undo: () => travel(undone.past, undone.future), redo: () => travel(undone.future, undone.past),
    clear: () => switchHeads([...current.heads.keys()].map((index) => [index, 1])), control: askControl, link: () => { keep(); copied(location.href, "Link"); },
    python: () => attempt(async () => copied((await ask("script", "script", question())).text, "Script")), png: asPicture, json: asJson,
  };
  for (const [name, click] of Object.entries(clicks)) $(`live-${name}`).addEventListener("click", click);
  $("live-weighted").addEventListener("change", showAttention);
  $("live-matrix").addEventListener("mousemove", overMatrix);
  $("live-matrix").addEventListener("mouseleave", () => { $("tip").hidden = true; point(null); });
  $("live-text").addEventListener("mouseleave", () => point(null));
  addEventListener("keydown", (e) => {
    if (!(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "z" || /^(input|textarea|select)$/i.test(document.activeElement?.tagName)) return;
    e.preventDefault();
    e.shiftKey ? clicks.redo() : clicks.undo();
  });
  addEventListener("hashchange", restore);
  restore();
  live.picked = () => { keep(); aroundNone(); askHead(); };
};
