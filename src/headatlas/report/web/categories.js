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
  parent.classList.add("row-of-five");
  grid(parent, { ...same, ...all }).steady = true;
  names.forEach((title, i) => {
    const has = (b) => (b > 0 && b & (1 << i) ? 1 : 0), of = `Map of the ${bits.filter(has).length} heads of category ${title}.`;
    grid(parent, { ...same, title, label: of, z: kind(has, 2), colours: () => steps([css("--line"), colours[i]]) }).steady = true;
  });
}
function always() {
  scaleBar($("always-scale"), "Facilitation", PALETTES.turbo, [0, 0.2, 0.4, 0.6, 0.8, 1].map((at) => ({ at, text: at.toFixed(1) })));
  $("always-maps").classList.add("pairs");
  for (const { title, values, tested, notes } of data.always) {
    const v = floats(values), high = v.filter((x) => x >= ROLE_FROM).length;
    const tip = (at) => [nameOf(at), `${title}: ${number(v[at])}`, ...(tested.includes(at) ? [REMOVED] : [])];
    const label = `Heat map of ${title}: ${high} heads are at least ${ROLE_FROM}.`;
    const z = (at) => (missing(v[at]) ? null : v[at]);
    grid($("always-maps"), { title, notes, label, z, colours: () => plain(PALETTES.turbo), tip, framed: tested }).steady = true;
  }
}

