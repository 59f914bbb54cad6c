// ---------- Plotly
const esc = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // Plotly interprets some markup
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset", scrollZoom: false, showTips: false };
const coarse = matchMedia("(pointer: coarse)").matches; // on touch screens, dragging must scroll the page
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
function ring(x, y, type, size) { // white within black, visible on any colour; in pixels, visible at any size
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
  if (click) div.on("plotly_click", (e) => click(e.points[0], e.event));
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
// Frames around heads, white within black, visible on any colour. Drawn as two lines: one shape per head would be slow.
function frames(heads, byLayer, pixels) {
  const x = [], y = [];
  for (const index of heads) {
    const [layer, head] = [data.layers[Math.floor(index / H)], data.heads[index % H]];
    for (const [down, right] of [[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]]) {
      x.push(byLayer ? layer + down : head + right);
      y.push(byLayer ? head + right : layer + down);
    }
    x.push(null); // a gap before the next
    y.push(null);
  }
  const width = Math.min(1.6, Math.max(0.6, pixels / 9));
  const line = (color, width) => ({ type: "scatter", mode: "lines", x, y, line: { color, width }, hoverinfo: "skip" });
  return heads.length ? [line("#000000", 2.6 * width), line("#ffffff", width)] : [];
}
function grid(parent, { title, notes = [], framed = [], label, z, colours, tip, onPick = () => {}, across = "head", most = 300, height = 0, gap = 0, className = "panel" }) {
  const div = el("div", { className: "chart", role: "img" });
  const root = el("div", { className, tabIndex: 0, role: "group" }, el("h3", {}, title), ...notes.map((note) => el("p", { className: "detail" }, note)), div);
  root.setAttribute("aria-label", `${title}: map of heads; arrow keys move the selected head`);
  div.setAttribute("aria-label", label);
  parent.append(root);
  const byLayer = across === "layer", [x, y] = byLayer ? [data.layers, data.heads] : [data.heads, data.layers];
  const cell = (row, column) => (byLayer ? column * H + row : row * H + column);
  div.style.height = `${height || Math.round(Math.min(most, Math.max(150, (div.clientWidth - 50) * (y.length / x.length) + 42)))}px`;
  const ends = (numbers) => [numbers[0] - 0.5, numbers.at(-1) + 0.5]; // the ends of the cells: frames must not widen the axes
  const heads = { ...axis("Head"), ...wholeNumbers(data.heads), range: ends(data.heads) };
  const layers = { ...axis("Layer"), ...wholeNumbers(data.layers), range: byLayer ? ends(data.layers) : ends(data.layers).reverse() };
  function draw() {
    const values = y.map((_, r) => x.map((_, c) => z(cell(r, c))));
    const looks = { zmin: 0, zmax: 1, colorscale: colours(), showscale: false, xgap: gap, ygap: gap, hoverinfo: "none" };
    const axes = byLayer ? { xaxis: layers, yaxis: heads } : { xaxis: heads, yaxis: layers };
    for (const a of Object.values(axes)) a.color = css("--muted");
    const pixels = Math.min((div.clientWidth - 50) / x.length, (div.clientHeight - 42) / y.length);
    const heatmap = { type: "heatmap", x, y, z: values, ...looks };
    Plotly.react(div, [heatmap, ...frames(framed, byLayer, pixels)], layout({ ...axes, uirevision: 1 }), CONFIG);
    const pointed = ({ pointIndex: [r, c] }) => cell(r, c);
    events(div, (p) => tip(pointed(p)), (p, e) => { if (e.shiftKey) live.toggle(pointed(p)); else { onPick(); select(pointed(p)); } });
  }
  function mark() {
    if (!div.layout) return;
    const [l, h] = state.selected === null ? [] : [data.layers[Math.floor(state.selected / H)], data.heads[state.selected % H]];
    const selected = state.selected === null ? [] : ring(byLayer ? l : h, byLayer ? h : l, "rect", 5);
    Plotly.relayout(div, { shapes: [...live.crosses(byLayer), ...selected] });
  }
  root.addEventListener("keydown", (e) => {
    if (e.key === "x" && state.selected !== null) live.toggle(state.selected);
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!steps || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    move(...(byLayer ? [steps[1], -steps[0]] : steps));
  });
  return addView(root, draw, mark);
}
function move(down, right) {
  let [row, column] = [Math.floor((state.selected ?? 0) / H), (state.selected ?? 0) % H];
  do { row += down; column += right; } while (row >= 0 && row < N / H && column >= 0 && column < H && !exists(row * H + column));
  if (row >= 0 && row < N / H && column >= 0 && column < H) select(row * H + column);
}
function chartGrid(parent, chart, options = {}) {
  const { scale } = groupOf(chart), values = score(chart);
  const z = (index) => (missing(values[index]) ? null : (passesThreshold(values[index]) ? 0.51 : 0) + 0.49 * shade(chart, index));
  const top = best(chart), highest = top === undefined ? "" : ` Highest: ${nameOf(top)}, ${number(values[top])}, ${placeInWords(chart, top)}.`;
  const label = `Heat map of ${full(chart)}, by layer and head.${highest}${chart.notes.map((note) => ` ${note}.`).join("")}`;
  const tip = (index) => tipOf(chart, index), colours = () => twoHalves(paletteOf(scale));
  return grid(parent, { title: words(chart.subject), notes: chart.notes, framed: chart.tested, label, z, colours, tip, ...options });
}
function tipOf(chart, index) {
  if (missing(score(chart)[index])) return [nameOf(index), "no head here, or no score"];
  const between = interval(chart, index);
  const lines = [`${nameOf(index)} (layer ${data.layers[Math.floor(index / H)]}, head ${data.heads[index % H]})`, `${full(chart)}: ${number(score(chart)[index])}`];
  return [...lines, placeInWords(chart, index), ...(between ? [`interval ${between}`] : []), ...(chart.tested.includes(index) ? [REMOVED] : [])];
}

