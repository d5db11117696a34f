// The nearest change found of a row that alters its prediction, in terms of its columns.
//
// It follows `bayestree.explain.counterfactual`, but begins with grids instead of linear programs:
// columns are added one by one, each by the value that brings the prediction nearest to the wanted
// one for its cost, until that is reached; pairs of the most effective columns are tried too. What
// reaches it is shortened, column by column. That nothing is found is no proof that nothing exists.
const whatIfSearch = (() => {
  "use strict";
  const MOST = 10; // columns to which a change grows
  const POINTS = 41; // values of a number that are tried at a time, at most
  const WORK = 2e7; // votes that are computed in each phase, about
  const PAIRED = 6; // columns of which pairs are tried
  const ZOOMS = 3; // into the values of a number that is shortened
  const SWEEPS = 4; // over the columns of a change that is shortened
  const SMALL = 0.05; // cost below which a change is not preferred for being small
  const ROUNDING = 1e-12; // smaller differences of predictions are rounding errors
  const space = (from, to, n) => Array.from({ length: n }, (_, i) => from + (to - from) * i / Math.max(n - 1, 1));
  const rounded = (value, places) => {
    if (places >= 0) return Number(value.toFixed(Math.min(places, 100)));
    return Math.round(value / 10 ** -places) * 10 ** -places;
  };

  // How the value `now` of a column may change: not if it is missing, or a date.
  const movable = (field, k, now) => {
    if (now === null || field.kind === "date") return null;
    if (field.kind === "options") {
      const cost = (cell) => (field.ordered && now < field.known ? Math.abs(cell - now) : Number(cell !== now));
      const others = field.features.map((_, i) => i).filter((i) => i !== now && i < field.known);
      const less = (cell) => others.filter((one) => cost(one) < cost(cell));
      return { k, field, cost, spread: () => others, nearer: less, times: (cell) => cell };
    }
    const { places, scale, whole } = field;
    const low = whole ? Math.ceil(field.low) : field.low;
    const high = whole ? Math.floor(field.high) : field.high;
    const at = (values) => {
      const found = values.map((one) => Math.min(Math.max(rounded(one, places), low), high));
      return [...new Set(found)].filter((one) => one !== now).sort((a, b) => a - b);
    };
    return {
      k,
      field,
      cost: (cell) => Math.abs(cell - now) / scale,
      spread: (n) => at(space(low, high, n)),
      nearer: (cell, n, start = now) => at(space(start, cell, n)),
      times: (cell, factor) => {
        const change = factor * (cell - now);
        const further = Math.sign(change) * 0.5 * 10 ** -places;
        return at([now + change + further])[0];
      },
    };
  };

  // Whether a prediction is as wanted, and how near to it: 0 or more if it is.
  const judge = (wanted, mean) => {
    if (wanted.sign) {
      const margin = wanted.sign * (mean[0] - wanted.level);
      return { holds: margin >= 0, margin };
    }
    const best = mean.indexOf(Math.max(...mean));
    const own = wanted.label === null ? wanted.now : wanted.label;
    const others = Math.max(...Array.from(mean).filter((_, q) => q !== own));
    const margin = (wanted.label === null ? 1 : -1) * (others - mean[own]);
    return { holds: (best === own) === (wanted.label !== null), margin };
  };

  class Search {
    constructor(model, x, cells, wanted) {
      this.wanted = wanted;
      this.encode = (column, cell) => whatIfModel.encode(column.field, cell);
      this.after = model.predictor(x);
      const all = model.fields.map((field, k) => movable(field, k, cells[k]));
      this.columns = new Map(all.filter(Boolean).map((one) => [one.k, one]));
      this.evaluations = Math.min(Math.max(WORK / model.work, 200), 4000);
      const points = Math.floor(this.evaluations / Math.max(this.columns.size, 1));
      this.points = Math.min(Math.max(points, 3), POINTS);
    }

    // A change is a map from columns to their new cells.
    try(step) {
      const changes = [];
      for (const [k, cell] of step) {
        const column = this.columns.get(k);
        this.encode(column, cell).forEach((value, i) => changes.push([column.field.at[i], value]));
      }
      return judge(this.wanted, this.after(changes));
    }

    distance(step) {
      let sum = 0;
      for (const [k, cell] of step) sum += this.columns.get(k).cost(cell);
      return sum;
    }

    * all(step, columns, points) {
      const found = [];
      for (const k of columns) {
        for (const cell of this.columns.get(k).spread(points)) {
          const next = new Map(step).set(k, cell);
          found.push({ k, step: next, cost: this.distance(next), ...this.try(next) });
          yield;
        }
      }
      return found;
    }

    static least(found) {
      return found.filter((one) => one.holds).reduce((a, b) => (a && a.cost <= b.cost ? a : b), null);
    }

    // Of each column the value that comes nearest, the most for its cost first.
    static effective(found, margin, cost) {
      const best = new Map();
      for (const one of found) {
        if (!best.has(one.k) || best.get(one.k).margin < one.margin) best.set(one.k, one);
      }
      const rate = (one) => (one.margin - margin) / Math.max(one.cost - cost, SMALL);
      return [...best.values()].filter((one) => one.margin - margin > ROUNDING).sort((a, b) => rate(b) - rate(a));
    }

    * grown() {
      let step = new Map();
      this.first = [];
      for (let n = 0; n < 2 * MOST; n += 1) {
        const free = step.size >= MOST ? [...step.keys()] : [...this.columns.keys()];
        const found = yield* this.all(step, free, this.points);
        const reached = Search.least(found);
        const effective = Search.effective(found, this.try(step).margin, this.distance(step));
        if (n === 0) this.first = effective;
        if (reached) return reached.step;
        if (!effective.length) return null;
        [{ step }] = effective;
      }
      return null;
    }

    * paired() {
      const columns = this.first.slice(0, PAIRED).map((one) => one.k);
      const pairs = columns.flatMap((a, i) => columns.slice(i + 1).map((b) => [a, b]));
      const points = Math.max(3, Math.floor(Math.sqrt(this.evaluations / Math.max(pairs.length, 1))));
      const found = [];
      for (const [a, b] of pairs) {
        for (const cell of this.columns.get(a).spread(points)) {
          found.push(...yield* this.all(new Map([[a, cell]]), [b], points));
        }
      }
      const reached = Search.least(found);
      return reached && reached.step;
    }

    * shortened(given) {
      let step = given;
      for (let n = 0; n < SWEEPS; n += 1) {
        const before = this.distance(step);
        for (const factor of space(0, 1, 17).slice(1, -1)) {
          const less = new Map([...step].map(([k, cell]) => [k, this.columns.get(k).times(cell, factor)]));
          for (const [k, cell] of less) if (cell === undefined) less.delete(k);
          yield;
          if (this.try(less).holds && this.distance(less) < before) { step = less; break; }
        }
        const largest = [...step.keys()].sort((a, b) => this.columns.get(b).cost(step.get(b)) - this.columns.get(a).cost(step.get(a)));
        for (const k of largest) step = yield* this.less(step, k);
        if (!(this.distance(step) < before * 0.99)) break;
      }
      return step;
    }

    // Without a column, or with the least change of it that is needed.
    * less(step, k) {
      const rest = new Map(step);
      rest.delete(k);
      if (this.try(rest).holds) return rest;
      const column = this.columns.get(k);
      let cell = step.get(k);
      let start;
      for (let n = 0; n < ZOOMS; n += 1) {
        const values = column.nearer(cell, POINTS, start).sort((a, b) => column.cost(a) - column.cost(b));
        let place = 0;
        while (place < values.length && !this.try(new Map(rest).set(k, values[place])).holds) {
          place += 1;
          yield;
        }
        if (place >= values.length) break;
        cell = values[place];
        if (place) start = values[place - 1];
      }
      return rest.set(k, cell);
    }

    * run() {
      const candidates = [yield* this.grown(), yield* this.paired()].filter(Boolean);
      const found = [];
      for (const one of candidates) found.push(yield* this.shortened(one));
      return found.sort((a, b) => this.distance(a) - this.distance(b));
    }
  }

  // Search in steps: a generator that returns the change and its prediction, or null.
  const nearest = function* nearest(model, number, cells, wanted) {
    const search = new Search(model, model.changed(number, cells), cells, wanted);
    for (const step of yield* search.run()) {
      const changed = cells.map((cell, k) => (step.has(k) ? step.get(k) : cell));
      const found = model.predict(model.changed(number, changed));
      if (!judge(wanted, found.mean).holds) continue; // by rounding
      return { cells: changed, step, distance: search.distance(step), found, agree: agreement(model, wanted, found) };
    }
    return null;
  };

  // The share of the draws with the wanted outcome.
  const agreement = (model, wanted, { each, mean }) => {
    let share = 0;
    let first = 0;
    each.forEach((values, p) => {
      const { draws } = model.parts[p];
      for (let s = 0; s < draws; s += 1) {
        const own = values.subarray(s * mean.length, (s + 1) * mean.length);
        if (judge(wanted, own).holds) share += model.weights[first + s];
      }
      first += draws;
    });
    return share;
  };

  return { nearest };
})();
