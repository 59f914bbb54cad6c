"use strict";
// The page: state, then small functions from data to panels. Names and tokens only ever become text nodes, never markup.
(() => {
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
const passed = data.groups.find((g) => g.charts.some((c) => !data.charts[c].none)); // do not begin with maps that mean nothing
const state = { group: passed ?? data.groups[0], chart: null, threshold: 0, at: null };
const views = new Set(); // all that can be drawn: { root, draw, mark }

// ---------- numbers
const $ = (id) => document.getElementById(id);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const floats = (text) => new Float32Array(bytes(text));
const range = (n) => Array.from({ length: n }, (_, i) => i);
const missing = (v) => v === null || v === undefined || Number.isNaN(v);
const part = (chart, name) => (chart["_" + name] ??= chart[name] ? floats(chart[name]) : new Float32Array(N).fill(NaN));
const score = (chart) => part(chart, "score");
const places = (chart) => (chart._places ??= range(N).filter((i) => !missing(score(chart)[i])).sort((a, b) => score(chart)[b] - score(chart)[a] || a - b));
const sorted = (chart) => (chart._sorted ??= score(chart).filter((v) => !Number.isNaN(v)).sort());
const groupOf = (chart) => (chart._group ??= data.groups.find((g) => g.charts.includes(data.charts.indexOf(chart))));

function rank(chart, at) { // 1 is the highest; ties share the better place
  const all = sorted(chart), v = score(chart)[at];
  let low = 0, high = all.length;
  while (low < high) { const mid = (low + high) >> 1; if (all[mid] > v) high = mid; else low = mid + 1; }
  return missing(v) ? null : all.length - low + 1;
}
function middle(chart, at) { // of the places a head shares with its ties: by it, heads that score nothing do not come first
  const all = sorted(chart), v = score(chart)[at], first = rank(chart, at);
  return first + (all.length - first - all.findIndex((x) => x === v)) / 2;
}
const above = (chart) => (chart._above ??= new Set(chart.above));
const atChance = (chart, at) => chart.above !== null && !above(chart).has(at);
const level = (chart, at) => (typeof chart.chance === "string" ? part(chart, "chance")[at] : chart.chance);
const place = (chart, at) => (atChance(chart, at) ? chart.unranked : `${rank(chart, at)}${middle(chart, at) > rank(chart, at) ? "=" : ""}`);
function placed(chart, at) { // in words
  const chance = missing(level(chart, at)) ? "" : number(level(chart, at));
  if (atChance(chart, at)) return chart.unranked + (chance ? ` (${chance})` : "");
  return `rank ${place(chart, at)} of ${sorted(chart).length}${chance ? `, chance ${chance}` : ""}`;
}
const byPlace = (at) => (a, b) => atChance(a, at) - atChance(b, at) || middle(a, at) - middle(b, at);
function number(v) {
  if (missing(v)) return "–";
  const text = Math.abs(v) >= 1e-4 && Math.abs(v) < 1e5 ? String(Number(v.toPrecision(3))) : v === 0 ? "0" : v.toExponential(1);
  return text.replace("-", "−");
}
const several = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const words = (text) => text.replaceAll("_", " ");
const nameOf = (at) => `L${data.layers[Math.floor(at / H)]}.H${data.heads[at % H]}`;
const full = (chart) => `${groupOf(chart).title}, ${words(chart.subject)}`;
const interval = (chart, at) => (missing(part(chart, "low")[at]) ? "" : `${number(part(chart, "low")[at])} to ${number(part(chart, "high")[at])}`);
const exists = (at) => !data.charts.length || data.charts.some((c) => !missing(score(c)[at]));
const limit = () => state.group.scale.largest * (state.threshold / 1000) ** 2; // squared: most heads have small scores
const kept = (v) => state.threshold === 0 || Math.abs(v) >= limit();

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
// One colour scale in two halves, the lower one pale: which half a head's number lies in says whether it fades.
function twoHalves(palette) {
  const end = palette.length - 1, paper = css("--panel");
  const pale = palette.map((c, i) => [(i / end) * 0.49, mix(c, paper, 0.86)]);
  return [...pale, ...palette.map((c, i) => [0.51 + (i / end) * 0.49, c])];
}
const plain = (palette) => palette.map((c, i) => [i / (palette.length - 1), c]);
const paletteOf = (scale) => PALETTES[scale.diverging ? "diverging" : "viridis"];
const shade = (chart, at) => along(groupOf(chart).scale, atChance(chart, at) ? 0 : score(chart)[at]); // at chance: as 0
const along = (scale, v) => Math.min(1, Math.max(0, (v - scale.low) / (scale.high - scale.low)));
function scaleBar(root, title, palette, ticks) {
  const at = (t) => el("span", { style: `left:${t.at * 100}%` }, t.text);
  const strip = el("div", { className: "strip", style: `margin:0 1em;background:linear-gradient(90deg,${palette.join(",")})` });
  root.replaceChildren(title, strip, el("div", { className: "ticks" }, ...ticks.map(at)));
}

// ---------- Plotly
const esc = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // it reads some markup
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset", scrollZoom: false, showTips: false };
const coarse = matchMedia("(pointer: coarse)").matches; // there, dragging must scroll the page
function layout(extra) {
  const base = { autosize: true, margin: { l: 40, r: 10, t: 6, b: 36 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false };
  const font = { family: css("--font"), size: 11, color: css("--text") };
  return { ...base, font, dragmode: coarse ? false : "zoom", hovermode: "closest", ...extra };
}
function axis(title, extra = {}) {
  return { title: { text: title, standoff: 4 }, showgrid: false, zeroline: false, color: css("--muted"), fixedrange: coarse, ...extra };
}
function wholeNumbers(values) {
  const step = [1, 2, 3, 6, 12, 16, 24, 32].find((s) => values.length / s <= 6) ?? Math.ceil(values.length / 6);
  return { tickmode: "linear", tick0: 0, dtick: step, tickformat: "d" };
}
function ring(x, y, type, size) { // light within dark, to be seen on any colour; pixels, to be seen at any size
  const box = (s, color, width) => ({ type, xsizemode: "pixel", ysizemode: "pixel", xanchor: x, yanchor: y, x0: -s, x1: s, y0: -s, y1: s, line: { color, width } });
  return [box(size, "#000000", 4), box(size, "#ffffff", 2)];
}
function showTip(lines, event) {
  const tip = $("tip");
  tip.textContent = lines.join("\n");
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8), y = event.clientY + 16;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : y}px`;
}
function events(div, tip, click) {
  if (div._heard) return;
  div._heard = true;
  div.on("plotly_hover", (e) => showTip(tip(e.points[0]), e.event));
  div.on("plotly_unhover", () => ($("tip").hidden = true));
  if (click) div.on("plotly_click", (e) => click(e.points[0]));
}

// Panels are drawn when they come near the window: an atlas may have hundreds of them.
const watcher = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => {
  target._view.near = isIntersecting;
  if (isIntersecting && target._view.stale) paint(target._view);
}), { rootMargin: "300px" });
function paint(view) { view.stale = false; view.draw(); view.mark(); }
function stale(view) { view.stale = true; if (view.near) paint(view); }
function addView(root, draw, mark) {
  const view = { root, draw, mark, near: false, stale: true };
  root._view = view;
  views.add(view);
  watcher.observe(root);
  return view;
}
function dropViews(parent) {
  for (const view of [...views].filter((v) => parent.contains(v.root))) {
    views.delete(view);
    watcher.unobserve(view.root);
    view.root.querySelectorAll(".js-plotly-plot").forEach(Plotly.purge);
  }
  parent.replaceChildren();
}

// ---------- a map of all heads
function grid(parent, { title, note = "", label, z, colours, tip, onPick = () => {}, across = "head", most = 300, gap = 0, className = "panel" }) {
  const div = el("div", { className: "chart", role: "img" });
  const root = el("div", { className, tabIndex: 0, role: "group" }, el("h3", {}, title), ...(note ? [el("p", { className: "detail" }, note)] : []), div);
  root.setAttribute("aria-label", `${title}: map of heads; arrow keys move the selected head`);
  div.setAttribute("aria-label", label);
  parent.append(root);
  const byLayer = across === "layer", [x, y] = byLayer ? [data.layers, data.heads] : [data.heads, data.layers];
  const cell = (row, column) => (byLayer ? column * H + row : row * H + column);
  div.style.height = `${Math.round(Math.min(most, Math.max(150, (div.clientWidth - 50) * (y.length / x.length) + 42)))}px`;
  const heads = { ...axis("Head"), ...wholeNumbers(data.heads) }, layers = { ...axis("Layer"), ...wholeNumbers(data.layers) };
  function draw() {
    const values = y.map((_, r) => x.map((_, c) => z(cell(r, c))));
    const looks = { zmin: 0, zmax: 1, colorscale: colours(), showscale: false, xgap: gap, ygap: gap, hoverinfo: "none" };
    const axes = byLayer ? { xaxis: layers, yaxis: heads } : { xaxis: heads, yaxis: { ...layers, autorange: "reversed" } };
    for (const a of Object.values(axes)) a.color = css("--muted");
    Plotly.react(div, [{ type: "heatmap", x, y, z: values, ...looks }], layout({ ...axes, uirevision: 1 }), CONFIG);
    const pointed = ({ pointIndex: [r, c] }) => cell(r, c);
    events(div, (p) => tip(pointed(p)), (p) => { onPick(); select(pointed(p)); });
  }
  function mark() {
    if (!div.layout) return;
    const [l, h] = state.at === null ? [] : [data.layers[Math.floor(state.at / H)], data.heads[state.at % H]];
    Plotly.relayout(div, { shapes: state.at === null ? [] : ring(byLayer ? l : h, byLayer ? h : l, "rect", 5) });
  }
  root.addEventListener("keydown", (e) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!steps || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    move(...(byLayer ? [steps[1], -steps[0]] : steps));
  });
  return addView(root, draw, mark);
}
function move(down, right) {
  let [row, column] = [Math.floor((state.at ?? 0) / H), (state.at ?? 0) % H];
  do { row += down; column += right; } while (row >= 0 && row < N / H && column >= 0 && column < H && !exists(row * H + column));
  if (row >= 0 && row < N / H && column >= 0 && column < H) select(row * H + column);
}
function chartGrid(parent, chart, options = {}) {
  const { scale } = groupOf(chart), values = score(chart);
  const z = (at) => (missing(values[at]) ? null : (kept(values[at]) ? 0.51 : 0) + 0.49 * shade(chart, at));
  const best = places(chart)[0], grey = () => [[0, css("--line")], [1, css("--line")]];
  const highest = best === undefined ? "" : ` Highest: ${nameOf(best)}, ${number(values[best])}, ${placed(chart, best)}.`;
  const label = `Heat map of ${full(chart)}, by layer and head.${chart.none ? ` Grey: ${chart.note}.` : highest}`;
  const colours = chart.none ? grey : () => twoHalves(paletteOf(scale));
  return grid(parent, { title: words(chart.subject), note: chart.note, label, z, colours, tip: (at) => tipOf(chart, at), ...options });
}
function tipOf(chart, at) {
  if (missing(score(chart)[at])) return [nameOf(at), "no head here, or no score"];
  const between = interval(chart, at);
  const lines = [`${nameOf(at)} (layer ${data.layers[Math.floor(at / H)]}, head ${data.heads[at % H]})`, `${full(chart)}: ${number(score(chart)[at])}`];
  return [...lines, placed(chart, at), ...(between ? [`interval ${between}`] : [])];
}

// ---------- overview and close-up
function fill(select, groups, extra = []) { // groups: [label, [[value, text], …]]
  const option = ([value, text]) => el("option", { value }, text);
  select.replaceChildren(...extra.map(option), ...groups.map(([label, each]) => (label ? el("optgroup", { label }, ...each.map(option)) : each.map(option))).flat());
}
function showGroup() {
  const { group } = state;
  $("subject-name").textContent = group.subject;
  $("overview-noun").textContent = group.subject.toLowerCase();
  $("overview-colour").textContent = group.scale.diverging ? "red is above 0 and blue below" : "the brighter the cell, the higher its score";
  $("says").textContent = [group.says, data.evidence?.method === group.method ? data.evidence.caution : ""].join(" ").trim();
  fill($("subject"), [["", group.charts.map((c) => [c, words(data.charts[c].subject)])]]);
  if (group.charts.every((c) => data.charts[c].none)) $("scale").replaceChildren("None of these maps has a head above chance.");
  else scaleBar($("scale"), group.title, paletteOf(group.scale), group.scale.ticks);
  dropViews($("small"));
  for (const c of group.charts) chartGrid($("small"), data.charts[c], { onPick: () => showChart(c) }).chart = c;
  showChart(group.charts[0]);
}
function showChart(c) {
  if (state.chart === c && $("large").firstChild) return;
  state.chart = c;
  $("subject").value = c;
  for (const view of views) if (view.chart !== undefined) view.root.classList.toggle("current", view.chart === c);
  dropViews($("large"));
  chartGrid($("large"), data.charts[c], { title: full(data.charts[c]), most: 600 });
  showTop();
  fadeLater();
  card();
}
function showTop() {
  const chart = data.charts[state.chart];
  const rows = places(chart).slice(0, 20).map((at) => {
    const pick = el("button", { type: "button", onclick: () => select(at) }, nameOf(at));
    return { cells: [place(chart, at), pick, number(score(chart)[at]), interval(chart, at)], current: at === state.at };
  });
  const wide = rows.some((r) => r.cells[3]);
  const cut = (cells) => (wide ? cells : cells.slice(0, 3));
  rows.forEach((r) => (r.cells = cut(r.cells)));
  const none = chart.none ? `; ${chart.note}` : "";
  $("top").replaceChildren(table(`Highest heads: ${words(chart.subject)}${none}`, cut(["Rank", "Head", groupOf(chart).measure, "Interval"]), rows, [2, 3]));
}
let fading = 0;
function fadeLater() { // the words at once, the maps when the slider rests for a moment
  const values = sorted(data.charts[state.chart]), left = values.filter(kept).length;
  const sign = state.group.scale.diverging ? "±" : "";
  $("threshold-value").textContent = `${sign}${number(limit())}: ${left} of ${values.length} heads remain`;
  clearTimeout(fading);
  fading = setTimeout(() => { for (const view of views) if (view.fade && !view.stale) view.fade(); else if (!view.steady) stale(view); }, 60);
}

// ---------- selection
function select(at, say = true) {
  state.at = at;
  for (const view of views) if (!view.stale) view.mark();
  if (state.chart !== null) showTop();
  card();
  $("head").value = nameOf(at);
  $("goto-message").textContent = "";
  if (!say) return;
  const chart = data.charts[state.chart];
  const value = chart && !missing(score(chart)[at]) ? ` ${full(chart)}: ${number(score(chart)[at])}, ${placed(chart, at)}.` : "";
  $("announce").textContent = `Selected ${nameOf(at)}.${value}`;
}
function goTo(text) {
  const [, layer, head] = /^\s*L?\s*(\d+)\s*[.,:\s]\s*H?\s*(\d+)\s*$/i.exec(text) ?? [];
  const row = data.layers.indexOf(Number(layer)), column = data.heads.indexOf(Number(head));
  const at = row * H + column, none = row < 0 || column < 0;
  if (!none && exists(at)) { select(at); return; }
  const why = none ? `There is no head “${text.trim()}”.` : `${nameOf(at)} has no scores: layer ${data.layers[row]} may have no attention heads.`;
  $("goto-message").textContent = `${why} Heads here are ${nameOf(0)} to ${nameOf(N - 1)}.`;
}

// ---------- head card
const muted = (text) => el("p", { className: "muted" }, text);
function card() {
  const { at } = state, root = $("card");
  if (at === null) { root.replaceChildren(el("h2", {}, "No head selected"), el("p", {}, "Click a head in any map.")); return; }
  const where = `Layer ${data.layers[Math.floor(at / H)]}, head ${data.heads[at % H]} of ${data.model}${categoryOf(at)}`;
  root.replaceChildren(el("h2", {}, nameOf(at)), muted(where), ...highest(at), ...roles(at), ...effects(at), ...salient(at), ...scores(at));
}
function highest(at) {
  const telling = data.charts.filter((c) => rank(c, at) !== null && !atChance(c, at) && sorted(c)[0] !== sorted(c).at(-1));
  const best = telling.sort(byPlace(at)).slice(0, 3);
  const line = (c) => el("li", {}, `${full(c)}: ${placed(c, at)}`);
  return best.length ? [el("h3", {}, "Where it ranks highest"), el("ul", {}, ...best.map(line))] : [];
}
function roles(at) {
  const charts = data.charts.filter((c) => ROLES[c.measure] && !missing(score(c)[at]));
  const short = (v) => v.toFixed(2);
  const between = (c) => (missing(part(c, "low")[at]) ? "" : `${short(part(c, "low")[at])}–${short(part(c, "high")[at])}`);
  const cell = (c) => (c ? el("span", {}, short(score(c)[at]), el("small", {}, between(c))) : "–");
  const line = (task) => {
    const mine = charts.filter((c) => c.subject === task);
    const has = mine.filter((c) => score(c)[at] >= ROLE_FROM).map((c) => ROLES[c.measure]);
    const cells = Object.keys(ROLES).map((m) => cell(mine.find((c) => c.measure === m)));
    return [el("span", {}, words(task), el("small", {}, has.join(", ") || "no clear role")), ...cells];
  };
  const tasks = [...new Set(charts.map((c) => c.subject))];
  const says = muted(`Mean over seeds, and range. A role is a score of ${ROLE_FROM} or more.`);
  return tasks.length ? [el("h3", {}, "Roles"), says, table("", ["Task", "facilitates", "interferes", "irrelevant"], tasks.map(line), [1, 2, 3])] : [];
}
function effects(at) {
  const alone = data.charts.filter((c) => c.measure === "effect" && !missing(score(c)[at]));
  const sets = data.curves.map((curve) => ({ curve, step: stepOf(curve, at) })).filter(({ step }) => step !== null);
  const changes = ({ curve, step: i }) => {
    const change = (v) => (missing(v) ? "–" : number(v - curve.top[0]));
    const what = `${curve.title}, ${curve.why}${curve.measure.endsWith("log P") ? "" : `; ${curve.measure}`}`;
    const set = el("span", {}, `${words(curve.subject)}: top ${curve.removed[i]}`, el("small", {}, what));
    return [set, change(curve.top[i]), change(curve.random[i]), number(curve.p[i])];
  };
  const made = [];
  const single = (c) => [`${groupOf(c).title.split(":")[0]}, ${words(c.subject)}`, number(score(c)[at]), place(c, at)];
  if (alone.length) made.push(table("", ["This head removed", "Effect", "Rank"], alone.map(single), [1, 2]));
  if (sets.length) {
    made.push(muted("Sets of top heads it is in: change of log P when they are removed, and when as many random heads are."));
    made.push(table("", ["Set removed", "these", "random", "p"], sets.map(changes), [1, 2, 3]));
  }
  if (!made.length && data.curves.length) made.push(el("p", {}, "It is in none of the sets of top heads that were removed."));
  return made.length ? [el("h3", {}, "Removal"), ...made] : [];
}
function stepOf(curve, at) { // the smallest set of removed top heads that holds this one
  if (curve.chart === null) return null;
  const place = places(data.charts[curve.chart]).indexOf(at), i = curve.removed.findIndex((n) => n > place);
  return place < 0 || i < 0 ? null : i;
}
function salient(at) {
  const s = data.tokens;
  if (!s) return [];
  const read = (name) => (s["_" + name] ??= new Uint32Array(bytes(s[name])));
  const tokens = (name, i) => (s[name] ? range(s.outputs).map((o) => s.texts[read(name)[(at * s.ranks + i) * s.outputs + o]]) : []);
  const shown = (each) => el("td", {}, ...each.filter(Boolean).flatMap((t) => [el("code", {}, t), " "]));
  const rows = range(s.ranks).map((i) => [i, s.texts[read("token")[at * s.ranks + i]]]).filter(([, token]) => token);
  const heads = ["Amplifies", ...(s.strongest ? ["writes"] : []), ...(s.suppressed ? ["suppresses"] : [])];
  const made = table("", heads, []);
  const gain = (i) => (s.amplification ? [el("small", {}, `× ${number((s._amplification ??= floats(s.amplification))[at * s.ranks + i])}`)] : []);
  for (const [i, token] of rows) {
    const outputs = ["strongest", "suppressed"].filter((n) => s[n]).map((n) => shown(tokens(n, i)));
    made.tBodies[0].append(el("tr", {}, el("td", {}, el("code", {}, token), ...gain(i)), ...outputs));
  }
  const says = muted("From parameters alone: what the head amplifies most, and what it makes of it.");
  return rows.length ? [el("h3", {}, "Salient tokens"), says, made] : [];
}
function scores(at) {
  const row = (c) => {
    const ends = interval(c, at) ? [el("small", {}, interval(c, at))] : [];
    return { current: data.charts[state.chart] === c, cells: [words(c.subject), el("span", {}, number(score(c)[at]), ...ends), place(c, at)] };
  };
  return data.groups.flatMap((g) => {
    const mine = g.charts.map((c) => data.charts[c]).filter((c) => !missing(score(c)[at])).sort(byPlace(at));
    const first = mine.length > 9 ? mine.slice(0, 5).filter((c) => score(c)[at] !== 0 && !atChance(c, at)) : mine; // of a long list, the best
    const rest = mine.filter((c) => !first.includes(c)), made = [];
    if (first.length) made.push(table("", [g.subject, g.measure, "Rank"], first.map(row), [1, 2]));
    if (rest.length) {
      const open = rest.includes(data.charts[state.chart]);
      made.push(el("details", { open }, el("summary", {}, `${rest.length} ${first.length ? "more" : "at chance or 0"}`), table("", [], rest.map(row), [1, 2])));
    }
    return made.length ? [el("h3", {}, g.title), ...made] : [];
  });
}

// ---------- head finder
const MARGIN = { l: 62, r: 14, t: 10, b: 44 };
function layerScale() {
  const [first, last] = [data.layers[0], data.layers.at(-1)];
  return { low: first, high: Math.max(last, first + 1), ticks: [{ at: 0, text: String(first) }, { at: 1, text: String(last) }] };
}
function meaning(select) { // what a place or a colour in the finder stands for
  if (select.value === "layer") return { title: "Layer", scale: layerScale(), of: (at) => data.layers[Math.floor(at / H)] };
  const chart = data.charts[select.value], values = score(chart);
  return { title: full(chart), scale: groupOf(chart).scale, of: (at) => (missing(values[at]) ? null : values[at]), shade: (at) => shade(chart, at) };
}
function between(values) { // the range of an axis, with room for the outermost points
  const known = values.filter((v) => v !== null);
  const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  return known.length ? [low - ((high - low) * 0.03 || 0.5), high + ((high - low) * 0.03 || 0.5)] : [0, 1];
}
function fillFinder(axes) {
  const all = data.groups.map((g) => [g.title, g.charts.map((c) => [c, `${words(data.charts[c].subject)} (${g.title})`])]);
  axes.forEach((s) => fill(s, all, [["layer", "Layer"]]));
  const first = data.groups[0].charts[0], other = data.groups.find((g) => g.method !== data.groups[0].method);
  [first, other?.charts[0] ?? data.groups[0].charts[1] ?? "layer", "layer"].forEach((value, i) => (axes[i].value = value));
}
function finder() {
  const axes = ["x", "y", "colour"].map((n) => $(`finder-${n}`));
  fillFinder(axes);
  const canvas = el("canvas", { "aria-hidden": "true" }), div = el("div", { className: "chart", role: "img", style: "height:420px" });
  $("finder-chart").replaceChildren(el("div", { className: "panel" }, el("div", { className: "layers" }, canvas, div)));
  const heads = range(N).filter(exists);
  function draw() {
    const [x, y, colour] = axes.map(meaning), [xs, ys] = [heads.map(x.of), heads.map(y.of)];
    const line = { zeroline: true, zerolinecolor: css("--line"), showgrid: true, gridcolor: css("--soft") };
    const plot = { xaxis: axis(esc(x.title), { ...line, range: between(xs) }), yaxis: axis(esc(y.title), { ...line, range: between(ys) }), margin: MARGIN };
    // Plotly does axes, zoom and pointing; points are painted below it, since thousands of its own would take seconds.
    Plotly.react(div, [{ type: "scatter", mode: "none", x: xs, y: ys, hoverinfo: "none" }], layout(plot), CONFIG);
    div.setAttribute("aria-label", `Scatter of all heads: ${x.title} against ${y.title}, coloured by ${colour.title}.`);
    scaleBar($("finder-scale"), colour.title, paletteOf(colour.scale), colour.scale.ticks);
    const tip = ({ pointIndex: i }) => [nameOf(heads[i]), ...axes.map(meaning).map((w) => `${w.title}: ${number(w.of(heads[i]))}`)];
    if (!div._heard) div.on("plotly_afterplot", points);
    events(div, tip, (p) => select(heads[p.pointIndex]));
    points();
  }
  const points = () => paintPoints(canvas, div, heads, axes[2]);
  function mark() {
    const [x, y] = axes.map((s) => (state.at === null ? null : meaning(s).of(state.at)));
    Plotly.relayout(div, { shapes: missing(x) || missing(y) ? [] : ring(x, y, "circle", 7) });
  }
  const view = addView(div, draw, mark);
  view.fade = points;
  axes.forEach((s) => s.addEventListener("change", () => stale(view)));
}
function paintPoints(canvas, div, heads, select) {
  const [width, height, dense] = [div.clientWidth, div.clientHeight, devicePixelRatio || 1], pen = canvas.getContext("2d");
  Object.assign(canvas, { width: width * dense, height: height * dense });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const [w, h] = [width - MARGIN.l - MARGIN.r, height - MARGIN.t - MARGIN.b], { x, y } = div.data[0], now = score(data.charts[state.chart]);
  const [[x0, x1], [y0, y1]] = [div.layout.xaxis.range, div.layout.yaxis.range], colour = meaning(select), palette = shades(paletteOf(colour.scale));
  pen.scale(dense, dense);
  Object.assign(pen, { strokeStyle: css("--muted"), lineWidth: 0.7 });
  pen.beginPath();
  pen.rect(MARGIN.l, MARGIN.t, w, h);
  pen.clip();
  heads.forEach((at, i) => {
    const v = colour.of(at);
    if (x[i] === null || y[i] === null) return;
    pen.globalAlpha = kept(now[at]) ? 0.85 : 0.08;
    pen.fillStyle = v === null ? css("--line") : palette[Math.round((colour.shade ? colour.shade(at) : along(colour.scale, v)) * 255)];
    pen.beginPath();
    pen.arc(MARGIN.l + ((x[i] - x0) / (x1 - x0)) * w, MARGIN.t + (1 - (y[i] - y0) / (y1 - y0)) * h, N > 3000 ? 2 : 3.6, 0, 7);
    pen.fill();
    if (N <= 3000) pen.stroke();
  });
}
function shades(palette) { // 256 steps between a palette's colours
  const place = (i) => (i / 255) * (palette.length - 1);
  return range(256).map((i) => mix(palette[Math.floor(place(i))], palette[Math.ceil(place(i))], place(i) % 1));
}

// ---------- category map, always and any
function kinds() { // in the order of the legend
  const { names, colours, several } = data.categories, none = css("--line");
  return [...several.map((s) => [s.name, s.colour]), ...names.map((n, i) => [n, colours[i]]).reverse(), ["Unclassified", none]];
}
const count = (bits) => bits.toString(2).replaceAll("0", "").length;
function kindOf(bits) { // place in kinds()
  const { names, several } = data.categories, n = count(bits);
  return bits === 0 ? several.length + names.length : n > 1 ? several.findIndex((s) => s.count === n) : several.length + names.length - 1 - Math.log2(bits);
}
const membership = (bits) => data.categories.names.filter((_, i) => bits & (1 << i)).join(", ") || "Unclassified";
const categoryOf = (at) => (data.categories && data.categories.bits[at] > 0 ? `; ${membership(data.categories.bits[at])}` : "");
function categories() {
  const { names, bits, threshold, colours } = data.categories;
  if (!missing(threshold)) $("categories-threshold").textContent = threshold;
  const key = (colour) => el("i", { className: "key", style: `background:${colour === css("--line") ? "var(--line)" : colour}` });
  $("categories-legend").replaceChildren(...kinds().map(([name, colour]) => el("li", {}, key(colour), name)));
  const steps = (each) => each.flatMap((c, i) => [[i / each.length, c], [(i + 1) / each.length, c]]);
  const kind = (i, n) => (at) => (bits[at] < 0 ? null : (i(bits[at]) + 0.5) / n);
  const tip = (at) => [nameOf(at), bits[at] < 0 ? "no head here, or no score" : membership(bits[at])];
  const same = { tip, across: "layer", gap: Math.max(H, N / H) > 40 ? 0 : 1 }, parent = $("categories-maps");
  const label = `Map of heads by category: ${bits.filter((b) => b > 0).length} of ${bits.filter((b) => b >= 0).length} heads have one.`;
  const all = { title: "All Categories", label, z: kind(kindOf, kinds().length), colours: () => steps(kinds().map((k) => k[1])) };
  grid(parent, { ...same, ...all, most: 420, className: "panel whole" }).steady = true;
  names.forEach((title, i) => {
    const has = (b) => (b > 0 && b & (1 << i) ? 1 : 0), of = `Map of the ${bits.filter(has).length} heads of category ${title}.`;
    grid(parent, { ...same, title, label: of, z: kind(has, 2), colours: () => steps([css("--line"), colours[i]]) }).steady = true;
  });
}
function always() {
  scaleBar($("always-scale"), "Facilitation", PALETTES.turbo, [0, 0.2, 0.4, 0.6, 0.8, 1].map((at) => ({ at, text: at.toFixed(1) })));
  $("always-maps").classList.add("pairs");
  for (const { title, values } of data.always) {
    const v = floats(values), high = v.filter((x) => x >= ROLE_FROM).length;
    const tip = (at) => [nameOf(at), `${title}: ${number(v[at])}`];
    const label = `Heat map of ${title}: ${high} heads are at least ${ROLE_FROM}.`;
    const z = (at) => (missing(v[at]) ? null : v[at]);
    grid($("always-maps"), { title, label, z, colours: () => plain(PALETTES.turbo), tip }).steady = true;
  }
}

// ---------- removal curves, agreement
function removal() {
  for (const title of new Set(data.curves.map((c) => c.title))) {
    const parent = el("div", { className: "multiples" });
    const mine = data.curves.filter((c) => c.title === title);
    $("removal-curves").append(el("h3", {}, title), ...(mine[0].says ? [el("p", { className: "about" }, mine[0].says)] : []), parent);
    mine.forEach((c) => curvePanel(parent, c));
  }
}
function curvePanel(parent, curve) {
  const name = words(curve.subject) + (curve.role ? `, ${curve.role}` : ""), last = curve.removed.length - 1;
  const div = el("div", { className: "chart", role: "img", style: "height:180px" }), detail = el("p", { className: "detail" });
  div.setAttribute("aria-label", `Removal curve of ${name}. ${curveTip(curve, last).join(", ")}.`);
  const root = el("div", { className: "panel" }, el("h4", {}, name), div, detail);
  parent.append(root);
  const line = (y, color) => ({ x: curve.removed, y, mode: "lines+markers", line: { color, width: 2 }, marker: { size: 5 }, hoverinfo: "none" });
  const drawn = range(curve.removed.length).filter((i) => !missing(curve.random_low[i])), back = [...drawn].reverse();
  const x = [...drawn, ...back].map((i) => curve.removed[i]);
  const y = [...drawn.map((i) => curve.random_low[i]), ...back.map((i) => curve.random_high[i])];
  function draw() {
    const band = { x, y, fill: "toself", mode: "lines", line: { width: 0 }, fillcolor: css("--random") + "40", hoverinfo: "skip" };
    const lines = [line(curve.random, css("--random")), line(curve.lowest, css("--lowest")), line(curve.top, css("--top"))];
    const yaxis = axis(esc(words(curve.measure)), { automargin: true, nticks: 5, showgrid: true, gridcolor: css("--soft") });
    Plotly.react(div, [band, ...lines], layout({ hovermode: "x", xaxis: axis("Heads removed", { rangemode: "tozero" }), yaxis }), CONFIG);
    events(div, ({ x: removed }) => curveTip(curve, curve.removed.indexOf(removed)));
  }
  function mark() {
    const i = state.at === null ? null : stepOf(curve, state.at);
    root.classList.toggle("lit", i !== null);
    detail.textContent = i === null ? "" : `${nameOf(state.at)} is among the top ${curve.removed[i]}`;
  }
  addView(root, draw, mark).steady = true;
}
function curveTip(c, i) {
  const each = [["top", c.top], ["random", c.random], ["lowest", c.lowest]].filter(([, v]) => !missing(v[i])).map(([n, v]) => `${n}: ${number(v[i])}`);
  const band = missing(c.random_low[i]) ? [] : [`random, middle 90 %: ${number(c.random_low[i])} to ${number(c.random_high[i])}`];
  return [`${c.removed[i]} heads removed`, ...each, ...band, ...(missing(c.p[i]) ? [] : [`p = ${number(c.p[i])}`])];
}
function special() {
  for (const s of data.special) {
    const most = Math.max(...s.values.flat().map((v) => Math.abs(v ?? 0)), 1e-9);
    const shade = (v) => `background:rgba(${v < 0 ? "33,102,172" : "178,24,43"},${(0.55 * Math.abs(v)) / most})`;
    const cell = (v) => (missing(v) ? "–" : el("span", { className: "shade", style: shade(v) }, number(v)));
    const parts = [el("h3", {}, s.title)];
    if (s.verdicts.length) {
      const rows = s.verdicts.map((v) => [words(v.function), v.heads || "–", number(v.own), number(v.others), number(v.random), number(v.p), v.verdict]);
      parts.push(table("On test questions: change of log P per answer token", ["Function", "Heads", "Itself", "Others", "Random heads", "p, corrected", "Result"], rows, [1, 2, 3, 4, 5]));
    }
    if (s.rows.length) {
      const rows = s.rows.map((r, i) => [words(r), ...s.values[i].map(cell)]);
      parts.push(table(`Change of ${s.measure}: whose heads are removed (rows) × what is asked (columns)`, ["", ...s.columns.map(words)], rows, range(s.columns.length).map((i) => i + 1)));
    }
    $("special-tables").append(...parts.map((p) => (p.tagName === "TABLE" ? el("div", { className: "wide-table" }, p) : p)));
  }
}
function agreement() {
  const div = el("div", { className: "chart", role: "img" });
  $("agreement-chart").replaceChildren(el("div", { className: "panel" }, div));
  const order = data.groups.flatMap((g) => g.charts), n = order.length;
  const z = order.map((a) => order.map((b) => data.agreement.spearman[a][b]));
  const narrow = div.clientWidth < 560, text = (c) => esc(full(data.charts[c]).replace(/^(.{42}).{2,}$/s, "$1…"));
  div.style.height = `${Math.min(820, Math.max(260, n * 13 + 60, narrow ? div.clientWidth : 0))}px`;
  div.setAttribute("aria-label", `Heat map of the Spearman correlation of every two of ${n} maps.`);
  const ticks = { tickvals: range(n), ticktext: order.map(text), tickfont: { size: 9 }, showticklabels: !narrow && n <= 80 };
  const draw = () => {
    const trace = { type: "heatmap", z, zmin: -1, zmax: 1, colorscale: plain(PALETTES.diverging), showscale: false, hoverinfo: "none" };
    const axes = { xaxis: axis("", { showticklabels: false, ticks: "" }), yaxis: axis("", { ...ticks, ticks: "", autorange: "reversed", automargin: true }) };
    Plotly.react(div, [trace], layout({ ...axes, margin: { l: 10, r: 10, t: 6, b: 10 } }), CONFIG);
    const tip = ({ pointIndex: [r, c] }) => [full(data.charts[order[r]]), full(data.charts[order[c]]), `Spearman ${number(z[r][c])}`];
    events(div, tip, ({ pointIndex: [r, c] }) => {
      $("finder-x").value = order[c];
      $("finder-y").value = order[r];
      $("finder-y").dispatchEvent(new Event("change"));
    });
  };
  scaleBar($("agreement-scale"), "Spearman correlation", PALETTES.diverging, [-1, -0.5, 0, 0.5, 1].map((v) => ({ at: (v + 1) / 2, text: number(v) })));
  addView(div, draw, () => {}).steady = true;
}

// ---------- evidence and provenance
function evidence() {
  $("verdict").textContent = data.evidence.verdict;
  const percent = (v) => (missing(v) ? "–" : `${Math.round(v * 100)} %`);
  const rows = (each) => each.map((r) => [r.name, percent(r.value), el("div", { className: "meter" }, el("i", { style: `width:${(r.value ?? 0) * 100}%` }))]);
  $("evidence-all").replaceChildren(table("All functions", ["What answers", "Accuracy", ""], rows(data.evidence.rows), [1]));
  const each = data.evidence.per_function;
  if (each.length) $("evidence-each").replaceChildren(table("The probe, by function", ["Function", "Accuracy", ""], rows(each), [1]));
}
function provenance() {
  $("tables").replaceChildren(...data.provenance.map((t) => table(t.title, [], t.rows.map(([k, v]) => [words(k), v]))));
  const link = (arxiv) => el("a", { href: `https://arxiv.org/abs/${arxiv}`, rel: "noreferrer" }, `arXiv ${arxiv}`);
  $("cite").replaceChildren(...data.cite.map((c) => el("li", {}, ...(c.arxiv ? [`${c.text}, `, link(c.arxiv)] : [c.text]))));
  if (!data.cite.length) $("cite").previousElementSibling.remove();
}

// ---------- while results are still being computed, the page loads itself again: what was looked at stays
function pending() {
  $("pending").textContent = `Still being computed: ${data.pending.join(", ")}. This page loads new results by itself.`;
  $("pending").hidden = false;
}
const memory = `headatlas ${data.model}`;
function remember() {
  const { group, chart, at, threshold } = state, subject = data.charts[chart]?.subject, theme = document.documentElement.dataset.theme;
  const now = { theme, at, threshold, y: scrollY, group: group && [group.method, group.title], subject };
  try { sessionStorage.setItem(memory, JSON.stringify(now)); } catch { /* a browser that keeps nothing for files */ }
}
function recall() {
  let then = null;
  try { then = JSON.parse(sessionStorage.getItem(memory)); sessionStorage.removeItem(memory); } catch { /* the same */ }
  if (!then || performance.getEntriesByType("navigation")[0]?.type === "navigate") return;
  theme(then.theme);
  const group = data.groups.findIndex((g) => g.method === then.group?.[0] && g.title === then.group?.[1]);
  if (group >= 0) {
    state.group = data.groups[group];
    $("method").value = group;
    showGroup();
    state.threshold = then.threshold;
    $("threshold").value = then.threshold;
    const subject = state.group.charts.find((c) => data.charts[c].subject === then.subject);
    if (subject !== undefined) showChart(subject);
    if (then.at !== null && exists(then.at)) select(then.at, false);
  }
  requestAnimationFrame(() => scrollTo(0, then.y));
}

// ---------- the whole
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  for (const view of views) stale(view);
}
function listen() {
  $("method").addEventListener("change", (e) => { state.group = data.groups[e.target.value]; state.threshold = 0; $("threshold").value = 0; showGroup(); });
  $("subject").addEventListener("change", (e) => showChart(Number(e.target.value)));
  $("threshold").addEventListener("input", (e) => { state.threshold = Number(e.target.value); fadeLater(); });
  $("goto").addEventListener("submit", (e) => { e.preventDefault(); goTo($("head").value); });
}
function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), now = () => document.documentElement.dataset.theme;
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (e) => theme(e.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(now() === "dark" ? "light" : "dark"));
  let before = null; // paper is white, and shows panels nobody has scrolled to
  const printing = (on) => document.documentElement.classList.toggle("printing", on); // as wide as paper before charts are drawn
  addEventListener("beforeprint", () => { before = now(); printing(true); theme("light"); for (const view of views) if (view.stale) paint(view); });
  addEventListener("afterprint", () => { printing(false); theme(before); });
  addEventListener("scroll", () => ($("tip").hidden = true), { passive: true });
  const charts = data.charts.length;
  const shown = {
    closeup: charts, finder: charts, categories: data.categories, always: data.always.length,
    removal: data.curves.length, special: data.special.length, agreement: data.agreement, evidence: data.evidence,
  };
  for (const [id, content] of Object.entries(shown)) if (!content) $(id).remove();
  $("contents").replaceChildren(...[...document.querySelectorAll("main > section")].map((s) => el("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
  $("summary").textContent = N ? `${several(data.layers.length, "layer")} × ${several(H, "head")}; ${several(data.charts.length, "map")}` : "No heads";
  if (charts) {
    fill($("method"), [["", data.groups.map((g, i) => [i, g.title])]]);
    $("method").value = data.groups.indexOf(state.group);
    listen();
    finder();
    showGroup();
  } else {
    $("bar").remove();
    const none = "This atlas holds no map of heads yet. Run a method (the command headatlas methods lists them) and make the report again.";
    $("overview").replaceChildren(el("h2", {}, "Overview"), el("p", {}, none));
  }
  if (data.categories) categories();
  if (data.always.length) always();
  if (data.curves.length) removal();
  if (data.special.length) special();
  if (data.agreement) agreement();
  if (data.evidence) evidence();
  provenance();
  const first = charts ? places(data.charts[state.chart])[0] : undefined;
  if (first !== undefined) select(first, false); else if (data.categories || data.always.length) card(); else $("card").remove();
  if (data.pending.length) pending();
  addEventListener("pagehide", remember);
  if (charts) recall();
}
start();
})();
