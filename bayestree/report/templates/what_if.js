// The section in which a reader edits a row.
(() => {
  "use strict";
  const box = document.getElementById("what-if");
  if (!box) return;
  const model = new whatIfModel.Model(JSON.parse(document.getElementById("what-if-data").textContent));
  const { fields, classes, shown, times } = model;
  const find = (query) => box.querySelector(query);
  const rows = find("#what-if-row");
  const goal = find("#what-if-goal");
  const DAY = 86400000;
  const MOST_CLASSES = 6; // that are listed
  const MOST_FACETS = 3; // of a node
  let cells = model.cells(0);
  let start; // the prediction of the row without edits
  let found; // the nearest change

  const make = (tag, attributes = {}, ...children) => {
    const space = ["svg", "path", "line", "text", "polygon"].includes(tag);
    const one = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
    one.append(...children.filter((child) => child !== null));
    return one;
  };
  const number = (value, digits = 4) => {
    const size = Math.abs(value);
    const text = size && (size < 1e-4 || size >= 1e7) ? value.toPrecision(digits) : String(
      size >= 10 ** (digits - 1) ? Math.round(value) : Number(value.toPrecision(digits)),
    );
    return text.replace("-", "\u2212");
  };
  const share = (value) => {
    if (value < 0.001 || value > 0.999) return value > 0.5 ? ">\u00a099.9\u00a0%" : "<\u00a00.1\u00a0%";
    return `${(100 * value).toFixed(1)}\u00a0%`;
  };
  const dated = (days, field) => new Date(Math.round(days * 1440) * 60000).toISOString().slice(0, field.timed ? 16 : 10);
  const words = (field, cell) => {
    if (cell === null) return "missing";
    if (field.kind === "options") return field.options[cell];
    return field.kind === "date" ? dated(cell, field).replace("T", " ") : number(cell, 5);
  };
  const between = (low, high, write) => (low === null ? "" : ` (${write(low)} to ${write(high)})`);
  const written = ({ mean, low, high }, q, write) => `${write(mean[q])}${between(low && low[q], high && high[q], write)}`;
  const best = (mean) => mean.indexOf(Math.max(...mean));

  // Fields.
  const put = (k) => {
    const [field, cell] = [fields[k], cells[k]];
    const own = find(`[data-field="${k}"]`);
    const main = own.querySelector("input:not([type=range]):not([type=checkbox]), select");
    const range = own.querySelector("[type=range]");
    const missing = own.querySelector("[type=checkbox]");
    if (missing) missing.checked = cell === null;
    if (document.activeElement !== main || cell === null || field.kind === "options") {
      main.value = cell === null ? "" : field.kind === "date" ? dated(cell, field) : cell;
    }
    if (range && cell !== null && document.activeElement !== range) range.value = cell;
    const before = field.cells[rows.value];
    own.classList.toggle("edited", before !== cell);
    own.querySelector(".was").textContent = before === cell ? "" : `was ${words(field, before)}`;
  };
  const read = (k, target) => {
    const field = fields[k];
    if (target.type === "checkbox") {
      const middle = field.kind === "number" ? (field.low + field.high) / 2 : null;
      const before = field.cells.find((one) => one !== null);
      return target.checked ? null : field.cells[rows.value] ?? before ?? middle;
    }
    if (target.value === "") return field.kind === "options" ? null : cells[k];
    if (field.kind === "date") return Date.parse(`${target.value}${field.timed ? "Z" : "T00:00Z"}`) / DAY;
    if (target.type !== "range") return Number(target.value);
    return Number(Number(target.value).toFixed(Math.max(field.places, 0)));
  };

  // Prediction.
  const bars = (found) => {
    const order = [...classes.keys()].sort((a, b) => found.mean[b] - found.mean[a]);
    const listed = classes.length > MOST_CLASSES ? order.slice(0, MOST_CLASSES) : [...classes.keys()];
    const body = make("tbody");
    for (const q of listed) {
      const fill = make("span", { class: "fill", style: `width: ${100 * found.mean[q]}%; background: var(--c${q})` });
      const meter = make("span", { class: "meter" }, fill);
      if (found.low) {
        meter.append(make("span", { class: "between", style: `left: ${100 * found.low[q]}%; width: ${100 * (found.high[q] - found.low[q])}%` }));
      }
      const swatch = make("span", { class: "swatch", style: `background: var(--c${q})` });
      const was = edited() ? make("span", { class: "of former" }, `before the edits ${share(start.mean[q])}`) : null;
      body.append(make("tr", {}, make("th", { scope: "row" }, swatch, classes[q]),
        make("td", {}, meter), make("td", {}, make("span", { class: "of" }, written(found, q, share)), was)));
    }
    const others = classes.length - listed.length;
    if (others) body.append(make("tr", {}, make("td", { colspan: 3, class: "of" }, `and ${others} less probable classes`)));
    return make("table", { class: "probabilities", "aria-label": "Probability of each class" }, body);
  };
  const curve = ({ mean, low, high }, before) => {
    const [width, height, left, bottom] = [420, 190, 38, 26];
    const x = (t) => left + (width - left - 8) * t / times[times.length - 1];
    const y = (p) => 8 + (height - bottom - 8) * (1 - p);
    const points = (values) => values.map((p, i) => `${x(times[i]).toFixed(1)},${y(p).toFixed(1)}`);
    const last = times.length - 1;
    const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": `Survival probability: ${share(mean[last / 2])} beyond ${number(times[last / 2], 3)}, ${share(mean[last])} beyond ${number(times[last], 3)}` });
    for (const p of [0, 0.5, 1]) {
      svg.append(make("line", { x1: left, x2: width - 8, y1: y(p), y2: y(p), class: "grid" }),
        make("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, String(p)));
    }
    for (const i of [0, last / 2, last]) {
      svg.append(make("text", { x: x(times[i]), y: height - 8, "text-anchor": i === last ? "end" : i ? "middle" : "start" }, number(times[i], 3)));
    }
    if (low) svg.append(make("polygon", { points: [...points(low), ...points(high).reverse()].join(" "), class: "band" }));
    if (before) svg.append(make("path", { d: `M${points(Array.from(before.mean)).join("L")}`, class: "before" }));
    svg.append(make("path", { d: `M${points(Array.from(mean)).join("L")}`, class: "curve" }));
    return svg;
  };
  const edited = () => fields.some((field, k) => field.cells[rows.value] !== cells[k]);
  const showPrediction = (now) => {
    const parts = [];
    let said;
    if (classes.length) {
      const q = best(now.mean);
      said = `${classes[q]}, probability ${written(now, q, share)}`;
      parts.push(make("p", { class: "predicted" }, make("b", {}, classes[q])), bars(now));
    } else {
      said = `${model.quantity}: ${written(now, 0, number)}`;
      const was = edited() ? `; ${number(start.mean[0])} before the edits` : "";
      parts.push(make("p", { class: "predicted" }, make("b", {}, number(now.mean[0])), between(now.low && now.low[0], now.high && now.high[0], number)),
        make("p", { class: "of" }, `${model.quantity[0].toUpperCase()}${model.quantity.slice(1)}${was}`));
    }
    if (times) {
      const caption = make("figcaption", {}, `Probability to survive beyond each time${edited() ? "; dashed: before the edits" : ""}.`);
      parts.push(make("figure", {}, curve(now.survival, edited() ? start.survival : null), caption));
    }
    find(".prediction").replaceChildren(...parts);
    return said;
  };

  // Path.
  const link = (at, text) => (document.getElementById(at) ? make("a", { href: `#${at}`, "data-at": at }, text) : text);
  const place = (at) => at.replace(/^t\d+-/, "");
  const facet = ({ expert, left }, part) => {
    const [text, limit, bound, divisor] = shown.facets[expert];
    const value = left / divisor;
    const holds = divisor > 0 ? value <= bound : value >= bound;
    const here = limit ? `here ${number(value)}: ` : "";
    return make("li", {}, `${text} ${limit}`.trim(), make("span", { class: "of" }, ` ${here}${holds ? "holds" : "does not hold"}${part}`));
  };
  const showPath = (x, right) => {
    const { steps, leaf } = model.path(x);
    const turns = steps.map((step) => {
      const name = place(shown.anchors[step.node]);
      const side = shown.sides[Number(step.right)];
      const chance = right ? ` with probability ${share(step.right ? right[step.node] : 1 - right[step.node])}` : "";
      const total = step.facets.reduce((sum, one) => sum + one.vote, 0);
      const adds = step.facets.length > 1 && !shown.all[step.node];
      const own = [...step.facets].sort((a, b) => b.activation - a.activation).sort((a, b) => b.vote - a.vote);
      const listed = shown.facets.length ? own.slice(0, MOST_FACETS) : [];
      const lines = listed.map((one) => facet(one, adds ? `, ${share(one.vote / total)} of the votes` : ""));
      const more = own.length - listed.length;
      return make("li", {}, link(shown.anchors[step.node], name === "root" ? "Root" : `Node ${name}`), ": ", make("b", {}, side), make("span", { class: "of" }, chance),
        make("ul", {}, ...lines, more && listed.length ? make("li", { class: "of" }, `${more} more facets`) : null));
    });
    const [at, label] = shown.leaves[leaf];
    turns.push(make("li", {}, link(at, `Leaf ${place(at)}`), ": ", make("b", {}, label)));
    find(".turns").replaceChildren(...turns);
    const passed = new Set([...steps.map((step) => shown.anchors[step.node]), at]);
    for (const one of document.querySelectorAll(".tree .link")) one.classList.toggle("of-row", passed.has(one.dataset.to));
  };

  // Nearest change.
  const wanted = (mean) => {
    if (classes.length) return { now: best(mean), label: goal && goal.value !== "" ? Number(goal.value) : null };
    const level = Number(goal.value);
    return { level, sign: mean[0] > level ? -1 : 1 };
  };
  const search = (mean, run) => {
    const change = find(".change");
    const apply = find(".apply");
    const wish = wanted(mean);
    if (classes.length && wish.label === wish.now) {
      change.replaceChildren(make("p", {}, `${classes[wish.now]} is predicted already.`));
      change.ariaBusy = "false";
      return;
    }
    const steps = whatIfSearch.nearest(model, Number(rows.value), cells, wish);
    const go = () => {
      if (run !== latest) return;
      const until = performance.now() + 14;
      let step;
      do step = steps.next(); while (!step.done && performance.now() < until);
      if (!step.done) { setTimeout(go); return; }
      found = step.value;
      if (found) showChange(change, wish);
      else change.replaceChildren(make("p", {}, "No change was found within the ranges of the training rows, which does not prove that there is none."));
      apply.hidden = !found;
      change.ariaBusy = "false";
    };
    change.replaceChildren(make("p", { class: "of" }, "Searching \u2026"));
    go();
  };
  const showChange = (change, wish) => {
    const lines = [...found.step].map(([k, cell]) => make("li", {}, make("b", {}, fields[k].name), `: ${words(fields[k], cells[k])} \u2192 `, make("b", {}, words(fields[k], cell))));
    const q = classes.length ? best(found.found.mean) : 0;
    const then = classes.length ? `${classes[q]}, ${written(found.found, q, share)}` : written(found.found, 0, number);
    const agree = model.interval ? ` ${share(found.agree)} of the draws agree.` : "";
    const what = wish.sign ? `${wish.sign > 0 ? "At least" : "At most"} ${number(wish.level)} is predicted` : "Another class is predicted";
    change.replaceChildren(make("p", {}, `${wish.label === null || wish.sign ? what : `${classes[wish.label]} is predicted`} after this change of size ${number(found.distance, 3)}:`),
      make("ul", { class: "steps" }, ...lines), make("p", {}, `Predicted then: ${then}.${agree}`));
  };

  // All at once; the search begins when the edits pause.
  let latest = 0;
  const update = () => {
    latest += 1;
    const run = latest;
    const x = model.changed(Number(rows.value), cells);
    const now = model.predict(x);
    if (!edited()) start = now;
    fields.forEach((_, k) => put(k));
    find(".undo").disabled = !edited();
    const said = showPrediction(now);
    showPath(x, now.right);
    found = null;
    find(".apply").hidden = true;
    find(".change").ariaBusy = "true";
    setTimeout(() => {
      if (run !== latest) return;
      find("[role=status]").textContent = said;
      search(now.mean, run);
    }, 250);
  };
  const reset = () => { cells = model.cells(Number(rows.value)); update(); };

  if (goal && !classes.length) goal.value = model.target;
  rows.addEventListener("change", reset);
  find(".undo").addEventListener("click", () => { reset(); rows.focus(); });
  find(".apply").addEventListener("click", () => { cells = found.cells; update(); find(".undo").focus(); });
  if (goal) goal.addEventListener("change", update);
  find(".values").addEventListener("input", ({ target }) => {
    const own = target.closest("[data-field]");
    if (!own) return;
    const k = Number(own.dataset.field);
    const value = read(k, target);
    if (Number.isNaN(value)) return;
    cells[k] = value;
    update();
  });
  find(".values").addEventListener("focusout", () => setTimeout(() => fields.forEach((_, k) => put(k))));
  update();
  globalThis.whatIf = model; // for the console
})();
