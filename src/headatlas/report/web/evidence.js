// ---------- evidence and provenance
function evidence() {
  $("probe-summary").textContent = data.evidence.summary;
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

