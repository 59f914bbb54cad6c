// The page: state, then small functions from data to panels. Names and tokens only ever become text nodes, never markup.
// The files of this folder are joined into one function, in the order of page.py.
const data = JSON.parse(document.getElementById("data").textContent);
const H = data.heads.length, N = data.layers.length * H;
const PALETTES = {
  viridis: ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"],
  turbo: ["#30123b", "#4145ab", "#4675ed", "#39a2fc", "#1bcfd4", "#24eca6", "#61fc6c", "#a4fc3b", "#d1e834", "#f3c63a",
    "#fe9b2d", "#f36315", "#d93806", "#b11901", "#7a0402"],
  diverging: ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b"],
};
const ROLES = { facilitation: "facilitating", interference: "interfering", irrelevance: "irrelevant" };
const ROLE_FROM = 0.5; // a head has a role from this score on, as published
const REMOVED = "removed in the test";
const state = { group: data.groups.find((g) => g.charts.includes(data.first)), chart: null, threshold: 0, selected: null };
const views = new Set(); // all panels: { root, draw, mark }
const live = { toggle: () => {}, picked: () => {}, button: () => [], crosses: () => [], start: () => {} }; // replaced on pages with a model (live/web/live.js)

// ---------- numbers
const $ = (id) => document.getElementById(id);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const floats = (text) => new Float32Array(bytes(text));
const printable = (text) => text.replace(/[\x00-\x1f\x7f]/g, (c) => (c === "\x7f" ? "␡" : String.fromCharCode(0x2400 + c.charCodeAt(0)))); // control characters as symbols
const range = (n) => Array.from({ length: n }, (_, i) => i);
const missing = (v) => v === null || v === undefined || Number.isNaN(v);
const part = (chart, name) => (chart["_" + name] ??= chart[name] ? floats(chart[name]) : new Float32Array(N).fill(NaN));
const score = (chart) => part(chart, "score");
const places = (chart) => (chart._places ??= range(N).filter((i) => !missing(score(chart)[i])).sort((a, b) => score(chart)[b] - score(chart)[a] || a - b));
const sorted = (chart) => (chart._sorted ??= score(chart).filter((v) => !Number.isNaN(v)).sort());
const groupOf = (chart) => (chart._group ??= data.groups.find((g) => g.charts.includes(data.charts.indexOf(chart))));

function rank(chart, index) { // 1 is the highest; ties share the better place
  const all = sorted(chart), v = score(chart)[index];
  let low = 0, high = all.length;
  while (low < high) { const mid = (low + high) >> 1; if (all[mid] > v) high = mid; else low = mid + 1; }
  return missing(v) ? null : all.length - low + 1;
}
function middle(chart, index) { // the mean of the ranks that a head shares with its ties, so that the many heads that score 0 do not come first
  const all = sorted(chart), v = score(chart)[index], first = rank(chart, index);
  return first + (all.length - first - all.findIndex((x) => x === v)) / 2;
}
const above = (chart) => (chart._above ??= new Set(chart.above));
const atChance = (chart, index) => chart.above !== null && !above(chart).has(index);
const best = (chart) => places(chart).find((index) => !atChance(chart, index)) ?? places(chart)[0]; // among heads above chance, if there are any
const level = (chart, index) => (typeof chart.chance === "string" ? part(chart, "chance")[index] : chart.chance);
const place = (chart, index) => (atChance(chart, index) ? chart.unranked : `${rank(chart, index)}${middle(chart, index) > rank(chart, index) ? "=" : ""}`);
function placeInWords(chart, index) { // such as "rank 3 of 144, chance 0.1"
  const chance = missing(level(chart, index)) ? "" : number(level(chart, index));
  if (atChance(chart, index)) return chart.unranked + (chance ? ` (${chance})` : "");
  return `rank ${place(chart, index)} of ${sorted(chart).length}${chance ? `, chance ${chance}` : ""}`;
}
const byPlace = (index) => (a, b) => atChance(a, index) - atChance(b, index) || middle(a, index) - middle(b, index);
function number(v) {
  if (missing(v)) return "–";
  const text = Math.abs(v) >= 1e-4 && Math.abs(v) < 1e5 ? String(Number(v.toPrecision(3))) : v === 0 ? "0" : v.toExponential(1);
  return text.replace("-", "−");
}
const several = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const words = (text) => text.replaceAll("_", " ");
const nameOf = (index) => `L${data.layers[Math.floor(index / H)]}.H${data.heads[index % H]}`;
const full = (chart) => `${groupOf(chart).title}, ${words(chart.subject)}`;
const interval = (chart, index) => (missing(part(chart, "low")[index]) ? "" : `${number(part(chart, "low")[index])} to ${number(part(chart, "high")[index])}`);
const exists = (index) => !data.charts.length || data.charts.some((c) => !missing(score(c)[index]));
const limit = () => state.group.scale.largest * (state.threshold / 1000) ** 2; // squared: most heads have small scores
const passesThreshold = (v) => state.threshold === 0 || Math.abs(v) >= limit();

// ---------- elements and colours
function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) key in node ? (node[key] = value) : node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function table(caption, heads, rows, numeric = []) {
  const cell = (tag) => (v, i) => el(tag, { className: numeric.includes(i) ? "number" : "", ...(tag === "th" ? { scope: "col" } : {}) }, v);
  const made = el("table", {}, ...(caption ? [el("caption", {}, caption)] : []));
  if (heads.length) made.append(el("thead", {}, el("tr", {}, ...heads.map(cell("th")))));
  made.append(el("tbody", {}, ...rows.map((r) => el("tr", { className: r.current ? "current" : "" }, ...(r.cells ?? r).map(cell("td"))))));
  return made;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
function mix(colour, other, share) {
  const [a, b] = [rgb(colour), rgb(other)];
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * share)).join(",")})`;
}
// One colour scale in two halves, the lower one pale: heads whose numbers lie in it are faded.
function twoHalves(palette) {
  const end = palette.length - 1, paper = css("--panel");
  const pale = palette.map((c, i) => [(i / end) * 0.49, mix(c, paper, 0.86)]);
  return [...pale, ...palette.map((c, i) => [0.51 + (i / end) * 0.49, c])];
}
const plain = (palette) => palette.map((c, i) => [i / (palette.length - 1), c]);
const paletteOf = (scale) => PALETTES[scale.diverging ? "diverging" : "viridis"];
function shade(chart, index) { // as in figures: values are clipped first, then dimmed if they are at chance
  const { scale } = groupOf(chart), v = Math.min(scale.high, Math.max(scale.low, score(chart)[index]));
  return along(scale, atChance(chart, index) ? data.dimmed * v : v);
}
const along = (scale, v) => Math.min(1, Math.max(0, (v - scale.low) / (scale.high - scale.low)));
function scaleBar(root, title, palette, ticks) {
  const tick = (t) => el("span", { style: `left:${t.at * 100}%` }, t.text);
  const strip = el("div", { className: "strip", style: `margin:0 1em;background:linear-gradient(90deg,${palette.join(",")})` });
  root.replaceChildren(title, strip, el("div", { className: "ticks" }, ...ticks.map(tick)));
}

