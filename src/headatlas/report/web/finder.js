// ---------- head finder
const MARGIN = { l: 62, r: 14, t: 10, b: 44 };
function layerScale() {
  const [first, last] = [data.layers[0], data.layers.at(-1)];
  return { low: first, high: Math.max(last, first + 1), ticks: [{ at: 0, text: String(first) }, { at: 1, text: String(last) }] };
}
function meaning(select) { // title, scale and value of an axis or colour
  if (select.value === "layer") return { title: "Layer", scale: layerScale(), value: (index) => data.layers[Math.floor(index / H)] };
  const chart = data.charts[select.value], values = score(chart);
  return { title: full(chart), scale: groupOf(chart).scale, value: (index) => (missing(values[index]) ? null : values[index]), shade: (index) => shade(chart, index) };
}
function between(values) { // the range of an axis, with room for the outermost points
  const numbers = values.filter((v) => v !== null);
  const low = numbers.reduce((a, b) => Math.min(a, b), Infinity), high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  return numbers.length ? [low - ((high - low) * 0.03 || 0.5), high + ((high - low) * 0.03 || 0.5)] : [0, 1];
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
    const [x, y, colour] = axes.map(meaning), [xs, ys] = [heads.map(x.value), heads.map(y.value)];
    const line = { zeroline: true, zerolinecolor: css("--line"), showgrid: true, gridcolor: css("--soft") };
    const plot = { xaxis: axis(esc(x.title), { ...line, range: between(xs) }), yaxis: axis(esc(y.title), { ...line, range: between(ys) }), margin: MARGIN };
    // Plotly draws axes and handles zoom and pointer; points are painted on a canvas below, because thousands of Plotly points take seconds.
    Plotly.react(div, [{ type: "scatter", mode: "none", x: xs, y: ys, hoverinfo: "none" }], layout(plot), CONFIG);
    div.setAttribute("aria-label", `Scatter of all heads: ${x.title} against ${y.title}, coloured by ${colour.title}.`);
    scaleBar($("finder-scale"), colour.title, paletteOf(colour.scale), colour.scale.ticks);
    const tip = ({ pointIndex: i }) => [nameOf(heads[i]), ...axes.map(meaning).map((a) => `${a.title}: ${number(a.value(heads[i]))}`)];
    if (!div._heard) div.on("plotly_afterplot", points);
    events(div, tip, (p) => select(heads[p.pointIndex]));
    points();
  }
  const points = () => paintPoints(canvas, div, heads, axes[2]);
  function mark() {
    const [x, y] = axes.map((s) => (state.selected === null ? null : meaning(s).value(state.selected)));
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
  const [w, h] = [width - MARGIN.l - MARGIN.r, height - MARGIN.t - MARGIN.b], { x, y } = div.data[0], chartScores = score(data.charts[state.chart]);
  const [[x0, x1], [y0, y1]] = [div.layout.xaxis.range, div.layout.yaxis.range], colour = meaning(select), palette = shades(paletteOf(colour.scale));
  pen.scale(dense, dense);
  Object.assign(pen, { strokeStyle: css("--muted"), lineWidth: 0.7 });
  pen.beginPath();
  pen.rect(MARGIN.l, MARGIN.t, w, h);
  pen.clip();
  heads.forEach((index, i) => {
    const v = colour.value(index);
    if (x[i] === null || y[i] === null) return;
    pen.globalAlpha = passesThreshold(chartScores[index]) ? 0.85 : 0.08;
    pen.fillStyle = v === null ? css("--line") : palette[Math.round((colour.shade ? colour.shade(index) : along(colour.scale, v)) * 255)];
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

