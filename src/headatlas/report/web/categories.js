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
const categoryOf = (index) => (data.categories && data.categories.bits[index] > 0 ? `; ${membership(data.categories.bits[index])}` : "");
function categories() {
  const { names, bits, threshold, colours } = data.categories;
  if (!missing(threshold)) $("categories-threshold").textContent = threshold;
  const key = (colour) => el("i", { className: "key", style: `background:${colour === css("--line") ? "var(--line)" : colour}` });
  $("categories-legend").replaceChildren(...kinds().map(([name, colour]) => el("li", {}, key(colour), name)));
  const steps = (palette) => palette.flatMap((c, i) => [[i / palette.length, c], [(i + 1) / palette.length, c]]);
  const kind = (i, n) => (index) => (bits[index] < 0 ? null : (i(bits[index]) + 0.5) / n);
  const tip = (index) => [nameOf(index), bits[index] < 0 ? "no head here, or no score" : membership(bits[index])];
  const same = { tip, across: "layer", gap: Math.max(H, N / H) > 40 ? 0 : 1 }, parent = $("categories-maps");
  const label = `Map of heads by category: ${bits.filter((b) => b > 0).length} of ${bits.filter((b) => b >= 0).length} heads have one.`;
  const all = { title: "All Categories", label, z: kind(kindOf, kinds().length), colours: () => steps(kinds().map((k) => k[1])) };
  parent.classList.add("row-of-five");
  grid(parent, { ...same, ...all }).steady = true;
  names.forEach((title, i) => {
    const isMember = (b) => (b > 0 && b & (1 << i) ? 1 : 0), description = `Map of the ${bits.filter(isMember).length} heads of category ${title}.`;
    grid(parent, { ...same, title, label: description, z: kind(isMember, 2), colours: () => steps([css("--line"), colours[i]]) }).steady = true;
  });
}
function always() {
  scaleBar($("always-scale"), "Facilitation", PALETTES.turbo, [0, 0.2, 0.4, 0.6, 0.8, 1].map((v) => ({ at: v, text: v.toFixed(1) })));
  $("always-maps").classList.add("pairs");
  for (const { title, values, tested, notes } of data.always) {
    const v = floats(values), high = v.filter((x) => x >= ROLE_FROM).length;
    const tip = (index) => [nameOf(index), `${title}: ${number(v[index])}`, ...(tested.includes(index) ? [REMOVED] : [])];
    const label = `Heat map of ${title}: ${high} heads are at least ${ROLE_FROM}.`;
    const z = (index) => (missing(v[index]) ? null : v[index]);
    grid($("always-maps"), { title, notes, label, z, colours: () => plain(PALETTES.turbo), tip, framed: tested }).steady = true;
  }
}

