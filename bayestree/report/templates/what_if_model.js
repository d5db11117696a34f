// Predictions as those of the package, from the numbers that the page carries.
const whatIfModel = (() => {
  "use strict";
  const LOG2 = Math.log(2);
  const TINY = 1e6 * 2.2250738585072014e-308; // keeps the log-odds of an underflowed score finite
  const softplus = (a) => Math.log1p(Math.exp(-Math.abs(a))) + Math.max(a, 0);
  const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array };
  const unpack = ({ type, bytes }) => {
    const text = atob(bytes);
    const data = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) data[i] = text.charCodeAt(i);
    return new TYPES[type](data.buffer);
  };

  // Draws of a tree of one topology; see `embedded_model.Part` for the arrays.
  class Part {
    constructor(data) {
      Object.assign(this, data);
      for (const name of ["weight", "intercept", "coefficient", "value", "slope", "column", "center", "scale"]) {
        if (data[name]) this[name] = unpack(data[name]);
      }
      [this.yCenter, this.yScale] = data.y;
      this.nNodes = this.experts.length - 1;
      this.nLeaves = this.nNodes + 1;
      this.nExperts = this.first.length - 1;
      this.nCoefficients = this.column.length;
      this.byColumn = new Map(); // of each feature, its experts and the places of its coefficients
      for (let e = 0; e < this.nExperts; e += 1) {
        for (let k = this.first[e]; k < this.first[e + 1]; k += 1) {
          const j = this.column[k];
          if (!this.byColumn.has(j)) this.byColumn.set(j, []);
          this.byColumn.get(j).push(e, k);
        }
      }
      this.reached = new Float64Array(this.nNodes);
      this.leaves = new Float64Array(this.nLeaves);
    }

    // The work of a prediction, in votes.
    get work() {
      const sloping = this.slope ? this.nLeaves * this.outputs * this.sloping.length / 8 : 0;
      return this.draws * (this.nExperts + sloping);
    }

    unit(j, x) { return (x - this.center[j]) / this.scale[j]; }

    // The pre-activations of all experts of all draws, for the features x.
    activations(x) {
      const { draws, nExperts, nCoefficients, first, column, coefficient } = this;
      const found = Float64Array.from(this.intercept);
      const row = Float64Array.from(column, (j) => this.unit(j, x[j]));
      for (let s = 0; s < draws; s += 1) {
        for (let e = 0; e < nExperts; e += 1) {
          let sum = 0;
          for (let k = first[e]; k < first[e + 1]; k += 1) sum += coefficient[s * nCoefficients + k] * row[k];
          found[s * nExperts + e] += sum;
        }
      }
      return found;
    }

    // The pre-activations after some features have changed, from those before.
    moved(before, x, changed) {
      const found = before.slice();
      for (const [j, value] of changed) {
        const step = (value - x[j]) / this.scale[j];
        const places = this.byColumn.get(j) || [];
        for (let i = 0; step && i < places.length; i += 2) {
          for (let s = 0; s < this.draws; s += 1) {
            found[s * this.nExperts + places[i]] += step * this.coefficient[s * this.nCoefficients + places[i + 1]];
          }
        }
      }
      return found;
    }

    score(activation, s, v) {
      let sum = TINY;
      for (let e = this.experts[v]; e < this.experts[v + 1]; e += 1) {
        const place = s * this.nExperts + e;
        sum += this.weight[place] * softplus(activation[place]);
      }
      return sum;
    }

    right(score) {
      if (this.steepness === null) return score > LOG2 ? 1 : 0;
      if (this.steepness === 1) return -Math.expm1(-score);
      const odds = this.steepness * (score + Math.log(-Math.expm1(-score)));
      return 1 / (1 + Math.exp(-odds));
    }

    // P(leaf | x) of a draw, in `leaves`.
    route(activation, s) {
      const { reached, leaves, children } = this;
      if (this.nNodes) reached[0] = 1; else leaves[0] = 1;
      for (let v = 0; v < this.nNodes; v += 1) {
        const right = reached[v] > 0 ? this.right(this.score(activation, s, v)) : 0;
        for (const [child, share] of [[children[2 * v], 1 - right], [children[2 * v + 1], right]]) {
          const mass = reached[v] * share;
          if (child >= 0) reached[child] = mass; else leaves[~child] = mass;
        }
      }
    }

    // What a leaf predicts for x.
    leaf(s, l, x, into) {
      const { outputs, sloping, slope, softmax } = this;
      for (let q = 0; q < outputs; q += 1) {
        const place = (s * this.nLeaves + l) * outputs + q;
        let sum = this.value[place];
        for (let k = 0; slope && k < sloping.length; k += 1) {
          sum += slope[place * sloping.length + k] * this.unit(sloping[k], x[sloping[k]]);
        }
        into[q] = sum;
      }
      if (!softmax) return;
      const most = Math.max(...into);
      for (let q = 0; q < outputs; q += 1) into[q] = Math.exp(into[q] - most);
      const total = into.reduce((a, b) => a + b, 0);
      for (let q = 0; q < outputs; q += 1) into[q] /= total;
    }

    // E(y | x) of each draw, outputs after outputs; or, `timed`, P(survival) at each time.
    predict(activation, x, timed = false) {
      const { draws, outputs, leaves, hazard } = this;
      const width = timed ? hazard.length : outputs;
      const found = new Float64Array(draws * width);
      const own = new Float64Array(outputs);
      for (let s = 0; s < draws; s += 1) {
        this.route(activation, s);
        for (let l = 0; l < this.nLeaves; l += 1) {
          if (!(leaves[l] > 0)) continue;
          this.leaf(s, l, x, own);
          for (let q = 0; q < width; q += 1) {
            found[s * width + q] += leaves[l] * (timed ? Math.exp(-hazard[q] * own[0]) : own[q]);
          }
        }
        if (!timed) for (let q = 0; q < width; q += 1) found[s * width + q] = this.yCenter + this.yScale * found[s * width + q];
      }
      return found;
    }
  }

  // The smallest values at or below which shares of the weights lie.
  const quantiles = (values, weights, levels) => {
    const order = Uint32Array.from(values.keys()).sort((a, b) => values[a] - values[b]);
    const total = weights.reduce((a, b) => a + b, 0);
    return levels.map((level) => {
      let below = 0;
      for (const place of order) {
        below += weights[place];
        if (below / total >= level * (1 - 1e-12)) return values[place];
      }
      return values[order[order.length - 1]];
    });
  };

  const DAY = 86400000;
  // Cells, the values of the columns, become features as in `bayestree.tables`.
  const encode = (field, cell) => {
    if (cell === null) return field.missing;
    if (field.kind === "options") return field.features[cell];
    const marked = field.missing ? [0] : []; // the feature of missing values
    if (field.kind === "number") return [cell, ...marked];
    const date = new Date(Math.floor(cell) * DAY);
    const parts = {
      days: cell,
      month: date.getUTCMonth() + 1,
      day: date.getUTCDate(),
      weekday: (date.getUTCDay() + 6) % 7,
      hour: (cell - Math.floor(cell)) * 24,
    };
    return [...field.parts.map((part) => parts[part]), ...marked];
  };

  class Model {
    constructor(data) {
      Object.assign(this, data);
      this.parts = data.parts.map((one) => new Part(one));
      this.tree = data.shown.part ? new Part(data.shown.part) : this.parts[0];
      this.values = unpack(data.rows);
      const equal = this.parts.flatMap((one) => Array(one.draws).fill(one.share / one.draws));
      const own = data.weights && unpack(data.weights); // of the draws, for each row
      this.weightsOf = (number) => (own ? Array.from(own.slice(number * equal.length, (number + 1) * equal.length)) : equal);
      this.weights = this.weightsOf(0);
      this.work = this.parts.reduce((sum, one) => sum + one.work, 0);
    }

    row(number) { return this.values.slice(number * this.features, (number + 1) * this.features); }

    cells(number) { return this.fields.map((field) => field.cells[number]); }

    // The features of a row of which some cells have changed; other features stay as they are.
    // Predictions that follow weight the draws as for this row.
    changed(number, cells) {
      this.weights = this.weightsOf(number);
      const x = this.row(number);
      cells.forEach((cell, k) => {
        if (cell !== this.fields[k].cells[number]) {
          encode(this.fields[k], cell).forEach((value, i) => { x[this.fields[k].at[i]] = value; });
        }
      });
      return x;
    }

    // The mean over all draws, relative to the sum if these are probabilities.
    mean(each, width) {
      const found = new Float64Array(width);
      let first = 0;
      each.forEach((values) => {
        for (let i = 0; i < values.length; i += 1) found[i % width] += this.weights[first + Math.floor(i / width)] * values[i];
        first += values.length / width;
      });
      return found;
    }

    normalised(found) {
      if (!this.classes.length) return found;
      const total = found.reduce((a, b) => a + b, 0);
      return found.map((one) => one / total);
    }

    summary(each, width) {
      const found = { mean: this.mean(each, width), low: null, high: null };
      if (!this.interval) return found;
      const bounds = Array.from(found.mean, (_, q) => {
        const values = each.flatMap((own) => Array.from({ length: own.length / width }, (__, s) => own[s * width + q]));
        return quantiles(values, this.weights, this.levels);
      });
      found.low = bounds.map((one) => one[0]);
      found.high = bounds.map((one) => one[1]);
      return found;
    }

    predict(x) {
      const activations = this.parts.map((one) => one.activations(x));
      const each = this.parts.map((one, p) => one.predict(activations[p], x));
      const found = this.summary(each, this.parts[0].outputs);
      found.mean = this.normalised(found.mean);
      found.each = each;
      if (this.times) {
        found.survival = this.summary(this.parts.map((one, p) => one.predict(activations[p], x, true)), this.times.length);
      }
      if (this.belief) found.right = this.beliefs(activations);
      return found;
    }

    // A function of changes of features, [[feature, value], ...], to what is predicted after them.
    predictor(x) {
      const before = this.parts.map((one) => one.activations(x));
      return (changes) => {
        const moved = x.slice();
        const last = new Map(changes);
        for (const [j, value] of last) moved[j] = value;
        const each = this.parts.map((one, p) => one.predict(one.moved(before[p], x, last), moved));
        return this.normalised(this.mean(each, this.parts[0].outputs));
      };
    }

    // P(right) of the nodes of the tree that is shown, over the draws of all parts that have them.
    beliefs(activations) {
      const n = this.tree.nNodes;
      const sums = new Array(n).fill(0);
      const totals = new Array(n).fill(0);
      const known = sums.map((_, v) => this.belief.some((one) => one.alike[v].includes(1)));
      let first = 0;
      this.parts.forEach((own, p) => {
        const { node, exchanged, alike } = this.belief[p];
        for (let v = 0; v < n; v += 1) {
          for (let s = 0; s < own.draws; s += 1) {
            if (known[v] && !alike[v][s]) continue;
            const right = own.right(own.score(activations[p], s, node[v][s]));
            sums[v] += this.weights[first + s] * (exchanged[v][s] ? 1 - right : right);
            totals[v] += this.weights[first + s];
          }
        }
        first += own.draws;
      });
      return sums.map((sum, v) => sum / totals[v]);
    }

    // The nodes that x passes in the tree that is shown, with their votes, and its leaf.
    path(x) {
      const { tree } = this;
      const activation = tree.activations(x);
      const steps = [];
      let at = tree.nNodes ? 0 : ~0;
      while (at >= 0) {
        const facets = [];
        for (let e = tree.experts[at]; e < tree.experts[at + 1]; e += 1) {
          const vote = tree.weight[e] * softplus(activation[e]);
          facets.push({ expert: e, vote, left: activation[e] - tree.intercept[e], activation: activation[e] });
        }
        const right = tree.right(tree.score(activation, 0, at)) === 1;
        steps.push({ node: at, right, facets });
        at = tree.children[2 * at + Number(right)];
      }
      return { steps, leaf: ~at };
    }
  }

  return { Model, encode };
})();
