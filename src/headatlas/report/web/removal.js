// ---------- removal curves, agreement
function removal() {
  for (const title of new Set(data.curves.map((c) => c.title))) {
    const parent = el("div", { className: "multiples" });
    const mine = data.curves.filter((c) => c.title === title);
    $("removal-curves").append(el("h3", {}, title), ...(mine[0].description ? [el("p", { className: "about" }, mine[0].description)] : []), parent);
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
      const rows = s.verdicts.map((v) => [words(v.function), v.heads || "–", number(v.target), number(v.others), number(v.random), number(v.p), v.verdict]);
      parts.push(table("On test questions: change of log P per answer token", ["Function", "Heads", "Itself", "Others, mean size", "Random heads", "p, corrected", "Result"], rows, [1, 2, 3, 4, 5]));
    }
    if (s.rows.length) {
      const rows = s.rows.map((r, i) => [words(r), ...s.values[i].map(cell)]);
      parts.push(table(`Change of ${s.measure}: heads removed (rows) × function measured (columns)`, ["", ...s.columns.map(words)], rows, range(s.columns.length).map((i) => i + 1)));
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
    events(div, tip, ({ pointIndex: [r, c] }) => find(order[c], order[r]));
  };
  scaleBar($("agreement-scale"), "Spearman correlation", PALETTES.diverging, [-1, -0.5, 0, 0.5, 1].map((v) => ({ at: (v + 1) / 2, text: number(v) })));
  addView(div, draw, () => {}).steady = true;
  if (data.agreement.pairs.length) $("agreement-pairs").replaceChildren(closest(data.agreement.pairs));
}
function find(x, y) { // two maps in the head finder
  $("finder-x").value = x;
  $("finder-y").value = y;
  $("finder-y").dispatchEvent(new Event("change"));
}
function closest(pairs) {
  const short = (v) => v.toFixed(2).replace("-", "−"), heads = ["A", "B", "Per", "Spearman", "p, corrected", "Top in both", "by chance", "AUROC A→B", "B→A"];
  const row = (r) => {
    const pick = el("button", { type: "button", onclick: () => find(r.a, r.b) }, short(r.spearman));
    const [a, b] = [r.a, r.b].map((c) => full(data.charts[c])), shared = `${number(r.shared)} of ${r.top}`;
    return [a, b, r.unit, pick, number(r.p_corrected), shared, number(r.shared_by_chance), short(r.auroc_ab), short(r.auroc_ba)];
  };
  return table(`The ${pairs.length} closest pairs. Click a correlation to put its two maps into the head finder.`, heads, pairs.map(row), [3, 4, 5, 6, 7, 8]);
}

