// SPDX-License-Identifier: Apache-2.0
// A zoomable chart on a canvas: lanes of named bars, curves and stacked areas over one axis.
//
// A lane has a name and one of: levels, arrays of spans {start, end, name, color}, each sorted and
// without overlaps, drawn below one another; points, [x, value] of a step curve; layers, {name,
// color, values} over the lane's xs, stacked, with their sums and an outline. A lane with lanes is a group, closed at first.
"use strict";

const LABEL = 176, AXIS = 26, BAR = 20, GAP = 8, CURVE = 46, FONT = "12px system-ui, sans-serif";

// Index of the first item from `low` on for which `after` holds; items are in order.
function first(items, after, low = 0) {
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (after(items[middle])) high = middle; else low = middle + 1;
  }
  return low;
}

// The next number above of 1, 2 and 5 times a power of ten.
function decimalStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find(n => n * power >= rough);
}

// Black or white, whichever is readable on a colour #rrggbb.
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map(at => parseInt(color.substr(at, 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
}

class Chart {
  // options: start, end, first (end of the view at first), text(x), step(width of a tick),
  // select(span, lane), arrows(span): [{from, to, at, label, missing}]
  constructor(canvas, lanes, options) {
    Object.assign(this, {canvas, lanes, options, scroll: 0, picked: null, mark: null, found: [], hits: new Set()});
    this.fit();
    if (options.first) this.look(options.start, options.first);
  }

  // ---- view

  fit() {
    this.scroll = 0;
    this.look(this.options.start, this.options.end);
  }

  look(start, end) {
    const {start: low, end: high} = this.options, all = Math.max(high - low, 1e-9);
    const width = Math.min(Math.max(end - start, all / 1e7), all);
    this.start = Math.min(Math.max(start, low), low + all - width);
    this.end = this.start + width;
    this.draw();
  }

  zoom(factor, x) {
    this.look(x - (x - this.start) * factor, x + (this.end - x) * factor);
  }

  get width() { return Math.max(this.canvas.clientWidth - LABEL - 8, 10); }
  x(value) { return LABEL + (value - this.start) / (this.end - this.start) * this.width; }
  value(x) { return this.start + (x - LABEL) / this.width * (this.end - this.start); }

  static height(lane) {
    return lane.height || (lane.levels ? lane.levels.length * (BAR + 1) : CURVE);
  }

  // Shown lanes with their upper edges.
  rows() {
    let y = AXIS + 4 - this.scroll;
    const out = [];
    const add = (lane, depth) => {
      out.push({lane, y, depth});
      y += Chart.height(lane) + GAP;
      if (lane.open) for (const inner of lane.lanes) add(inner, depth + 1);
    };
    for (const lane of this.lanes) add(lane, 0);
    this.bottom = y + this.scroll;
    return out;
  }

  roll(by) {
    this.rows();
    this.scroll = Math.max(0, Math.min(this.scroll + by, this.bottom - this.canvas.clientHeight));
    this.draw();
  }

  // ---- drawing

  draw() {
    const {canvas} = this, ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(document.documentElement), pen = canvas.getContext("2d");
    this.pen = pen;
    this.colors = {};
    for (const name of ["back", "panel", "text", "faint", "line", "pick"]) this.colors[name] = style.getPropertyValue("--" + name).trim();
    const areas = this.lanes.filter(lane => lane.layers);
    for (const lane of areas) lane.height = Math.max(140, (height - AXIS - 12) / areas.length - GAP);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = this.colors.back;
    pen.fillRect(0, 0, width, height);
    this.axis(width, height);
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, width, height - AXIS);
    pen.clip();
    this.shown = this.rows();
    for (const row of this.shown)
      if (row.y < height && row.y + Chart.height(row.lane) > AXIS) this.lane(row);
    pen.beginPath();
    pen.rect(LABEL, AXIS, width, height);
    pen.clip();
    this.arrows();
    pen.restore();
    if (this.options.moved) this.options.moved(this);
  }

  text(text, x, y, room) {
    if (room < 12) return;
    const fits = t => this.pen.measureText(t).width <= room;
    if (text.length > 300) text = text.slice(0, 300);
    if (!fits(text)) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (fits(text.slice(0, middle) + "…")) low = middle; else high = middle - 1;
      }
      if (low < 2) return;
      text = text.slice(0, low) + "…";
    }
    this.pen.fillText(text, x, y);
  }

  axis(width, height) {
    const {pen} = this, span = this.end - this.start, rough = span * 110 / this.width;
    const step = (this.options.step || decimalStep)(rough);
    for (let at = Math.ceil(this.start / step) * step; at <= this.end; at += step) {
      const x = this.x(at);
      pen.fillStyle = this.colors.line;
      pen.fillRect(x, AXIS - 6, 1, height);
      pen.fillStyle = this.colors.faint;
      pen.textAlign = x > width - 40 ? "right" : "center";
      if (x < width - 4) pen.fillText(this.options.text(at, step, this.end), Math.min(x, width - 4), AXIS / 2);
    }
    pen.textAlign = "left";
  }

  lane({lane, y, depth}) {
    const {pen} = this, height = Chart.height(lane);
    const middle = y + (lane.layers ? 34 : lane.levels && !lane.note ? BAR / 2 : height / 2);
    const room = LABEL - (lane.layers ? 76 : 20) - 12 * depth;
    const mark = lane.lanes ? (lane.open ? "▾ " : "▸ ") : "";
    pen.fillStyle = this.colors.text;
    this.text(mark + lane.name, 10 + 12 * depth, lane.note ? middle - 8 : middle, room);
    if (lane.note) {
      pen.fillStyle = this.colors.faint;
      this.text(lane.note, 10 + 12 * depth, middle + 8, room);
    }
    pen.fillStyle = this.colors.line;
    pen.fillRect(LABEL, y + height + GAP / 2, this.width, 1);
    if (lane.layers) this.heights(lane, y, height);
    pen.save();
    pen.beginPath();
    pen.rect(LABEL, y - 2, this.width, height + 4);
    pen.clip();
    if (lane.levels) lane.levels.forEach((spans, i) => this.bars(spans, y + i * (BAR + 1)));
    if (lane.points) this.curve(lane, y, height);
    if (lane.layers) this.stack(lane, y, height);
    pen.restore();
  }

  // Bars of one level: found ones are drawn over the others, the selected one last.
  bars(spans, y) {
    this.pen.globalAlpha = this.hits.size ? 0.25 : 1;
    this.run(spans, y);
    this.pen.globalAlpha = 1;
    const found = this.hits.size ? this.hitsOf(spans) : [];
    if (found.length) this.run(found, y);
    const {picked} = this;
    if (picked && picked.levelled === spans) this.bar(picked, y);
  }

  // Found spans of a level, in order.
  hitsOf(spans) {
    if (!this.levelHits.has(spans)) this.levelHits.set(spans, spans.filter(s => this.hits.has(s)));
    return this.levelHits.get(spans);
  }

  // Draws at most two bars a pixel: after a bar below a pixel, goes on with the first that ends in the next one.
  run(spans, y) {
    let i = first(spans, s => s.end >= this.start);
    while (i < spans.length && spans[i].start <= this.end) {
      const right = this.bar(spans[i], y), next = this.value(Math.floor(right) + 1);
      i++;
      if (i < spans.length && spans[i].end < next) i = first(spans, s => s.end >= next, i);
    }
  }

  // Draws a bar and returns its right edge.
  bar(s, y) {
    const {pen} = this, left = Math.max(this.x(s.start), LABEL - 2), right = Math.min(this.x(s.end), LABEL + this.width + 2);
    const width = Math.max(right - left - (right - left > 3 ? 1 : 0), 1);
    pen.fillStyle = s.color;
    pen.fillRect(left, y, width, BAR);
    if (s.critical) {
      pen.fillStyle = this.colors.pick;
      pen.fillRect(left, y + BAR - 3, width, 3);
    }
    if (width > 20) {
      pen.fillStyle = inkOn(s.color);
      this.text(pen.measureText(s.name).width > width - 8 ? s.name.replace(/^aten::/, "") : s.name, left + 4, y + BAR / 2, width - 8);
    }
    if (s === this.picked) {
      pen.strokeStyle = this.colors.pick;
      pen.lineWidth = 2;
      pen.strokeRect(left, y, width, BAR);
    }
    return left + width;
  }

  // A step curve: the maximum within each pixel, from maxima of blocks of 256 points.
  curve(lane, y, height) {
    const {pen} = this, points = lane.points, right = LABEL + this.width;
    let i = Math.max(first(points, p => p[0] > this.start) - 1, 0), level = 0;
    lane.blocks ||= Float64Array.from({length: points.length >> 8}, (_, block) => points.slice(block << 8, (block + 1) << 8).reduce((most, p) => Math.max(most, p[1]), -Infinity));
    const at = value => y + height - height * Math.max(value, 0) / (lane.peak || 1);
    pen.beginPath();
    pen.moveTo(LABEL, y + height);
    for (let x = LABEL; x <= right; x++) {
      const until = this.value(x + 1);
      let most = level;
      while (i < points.length && points[i][0] < until) {
        const end = (i & 255) === 0 && i + 256 <= points.length && points[i + 255][0] < until;
        most = Math.max(most, end ? lane.blocks[i >> 8] : points[i][1]);
        i += end ? 256 : 1;
        level = points[i - 1][1];
      }
      pen.lineTo(x, at(most));
      pen.lineTo(x + 1, at(most));
    }
    pen.lineTo(right, y + height);
    pen.fillStyle = lane.color;
    pen.fill();
  }

  // Stacked areas, lowest first, below the line of the outline.
  stack(lane, y, height) {
    const {pen} = this, right = LABEL + this.width, {xs, layers} = lane;
    let i = Math.max(first(xs, v => v > this.start) - 1, 0);
    const shown = [];  // one index for each pixel: that of the largest sum
    for (let x = LABEL; x <= right && xs[xs.length - 1] + 1 >= this.value(x); x++) {
      let best = i;
      for (const until = this.value(x + 1); i + 1 < xs.length && xs[i + 1] < until;) if (lane.sums[++i] > lane.sums[best]) best = i;
      shown.push(best);
    }
    for (let step = 2 ** Math.ceil(Math.log2(lane.peak / 5)), at = step; at < lane.peak; at += step) {
      pen.fillStyle = this.colors.line;
      pen.fillRect(LABEL, y + height - height * at / lane.peak, this.width, 1);
    }
    const base = shown.map(() => 0);
    for (const layer of layers) {
      pen.beginPath();
      shown.forEach((at, x) => {
        const edge = y + height - height * (base[x] + layer.values[at]) / lane.peak;
        pen.lineTo(LABEL + x, edge);
        pen.lineTo(LABEL + x + 1, edge);
      });
      for (let x = shown.length - 1; x >= 0; x--) {
        const edge = y + height - height * base[x] / lane.peak;
        pen.lineTo(LABEL + x + 1, edge);
        pen.lineTo(LABEL + x, edge);
      }
      pen.globalAlpha = this.hits.size && !this.hits.has(layer) ? 0.2 : 1;
      pen.fillStyle = layer.color;
      pen.fill();
      if (layer === this.picked) {
        pen.strokeStyle = this.colors.pick;
        pen.lineWidth = 2;
        pen.stroke();
      }
      const edge = bytes => y + height - height * bytes / lane.peak;
      this.label(layer, shown.map((at, x) => [edge(base[x] + layer.values[at]), edge(base[x])]));
      pen.globalAlpha = 1;
      shown.forEach((at, x) => base[x] += layer.values[at]);
    }
    pen.beginPath();
    shown.forEach((at, x) => {
      for (const side of [x, x + 1]) pen.lineTo(LABEL + side, y + height - height * lane.outline[at] / lane.peak);
    });
    pen.strokeStyle = this.colors.text;
    pen.lineWidth = 1;
    pen.stroke();
    if (this.mark === null) return;
    pen.fillStyle = this.colors.pick;
    pen.fillRect(this.x(this.mark), y, 1.5, height);
  }

  // Names an area in its longest straight part that is as high as the text.
  label(layer, edges) {
    let best = null, from = 0, top = -Infinity, bottom = Infinity;
    edges.forEach(([high, low], x) => {
      top = Math.max(top, high);
      bottom = Math.min(bottom, low);
      if (bottom - top < 15) [from, top, bottom] = low - high < 15 ? [x + 1, -Infinity, Infinity] : [x, high, low];
      else if (!best || x - from > best.room) best = {from, room: x - from, y: (top + bottom) / 2};
    });
    if (!best) return;
    this.pen.fillStyle = inkOn(layer.color);
    this.text(layer.name, LABEL + best.from + 6, best.y, best.room - 12);
  }

  // Round numbers of bytes beside stacked areas.
  heights(lane, y, height) {
    const {pen} = this;
    pen.fillStyle = this.colors.faint;
    pen.textAlign = "right";
    for (let step = 2 ** Math.ceil(Math.log2(lane.peak / 5)), at = 0; at < lane.peak; at += step) pen.fillText(bytesText(at), LABEL - 6, y + height - height * at / lane.peak);
    pen.textAlign = "left";
  }

  // Middle of a span's bar, in its lane or in the closed group of its lane; null if not shown.
  point(span, x) {
    for (const {lane, y} of this.shown) {
      const level = lane.levels ? lane.levels.findIndex(l => l[first(l, s => s.start >= span.start)] === span || l.includes(span)) : -1;
      if (level >= 0) return [this.x(x), y + level * (BAR + 1) + BAR / 2];
      if (lane.lanes && !lane.open && lane.lanes.includes(span.lane)) return [this.x(x), y + Chart.height(lane) / 2];
    }
    return null;
  }

  arrows() {
    const {pen} = this;
    for (const arrow of this.options.arrows ? this.options.arrows(this.picked) : []) {
      const from = this.point(arrow.from, arrow.at ?? arrow.from.start), to = this.point(arrow.to, arrow.at ?? arrow.to.start);
      if (!from || !to) continue;
      const side = Math.sign(to[1] - from[1]) * BAR / 2;  // from edge to edge of the bars
      from[1] += side;
      to[1] -= side;
      const tilt = Math.atan2(to[1] - from[1], to[0] - from[0]);
      pen.strokeStyle = pen.fillStyle = this.colors.pick;
      pen.lineWidth = arrow.missing ? 2.5 : 1.3;
      pen.setLineDash(arrow.missing ? [7, 5] : []);
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(...to);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.moveTo(...to);
      for (const side of [-0.4, 0.4]) pen.lineTo(to[0] - 10 * Math.cos(tilt + side), to[1] - 10 * Math.sin(tilt + side));
      pen.fill();
      if (!arrow.label) continue;
      const room = pen.measureText(arrow.label).width, y = (from[1] + to[1]) / 2;
      let x = (from[0] + to[0]) / 2 + 10;
      if (x + room > LABEL + this.width) x -= room + 20;
      pen.fillStyle = this.colors.back;
      pen.fillRect(x - 4, y - 10, room + 8, 20);
      pen.fillStyle = this.colors.pick;
      pen.fillText(arrow.label, x, y);
    }
  }

  // ---- selection and search

  // Returns {lane, span} below a point of the canvas; {lane, layer, index} in stacked areas.
  at(x, y) {
    if (y < AXIS) return {};
    const row = this.shown.find(r => y >= r.y && y < r.y + Chart.height(r.lane) + GAP);
    if (!row || x < LABEL) return row ? {lane: row.lane, label: true} : {};
    const {lane} = row, value = this.value(x);
    if (lane.layers) {
      const index = Math.max(first(lane.xs, v => v > value) - 1, 0);
      let room = (row.y + Chart.height(lane) - y) / Chart.height(lane) * lane.peak;
      const layer = lane.layers.find(l => (room -= l.values[index]) < 0);
      return {lane, span: layer, index};
    }
    const spans = lane.levels && lane.levels[Math.floor((y - row.y) / (BAR + 1))];
    if (!spans) return {lane};
    const slack = 2 * (this.end - this.start) / this.width;
    let i = first(spans, s => s.end >= value);
    if (!(spans[i] && spans[i].start <= value)) i = first(spans, s => s.end >= value - slack);
    return {lane, span: spans[i] && spans[i].start <= value + slack ? spans[i] : null};
  }

  pick(span, lane, index) {
    this.picked = span || null;
    if (span && span.lane && span.lane.levels) span.levelled = span.lane.levels.find(level => level[first(level, s => s.start >= span.start)] === span || level.includes(span));
    this.mark = lane && lane.xs && index !== undefined ? lane.xs[index] : null;
    this.options.select(this.picked, lane, index);
    this.draw();
  }

  // Shows a span with some of its neighbourhood, and selects it.
  go(span) {
    const lane = span.lane, group = this.lanes.find(l => l.lanes && l.lanes.includes(lane));
    if (group) group.open = true;
    if ("start" in span) {
      const width = Math.min(Math.max((span.end - span.start) * 8, (this.end - this.start) / 1000), this.end - this.start);
      const middle = (span.start + span.end) / 2;
      if (span.start < this.start || span.end > this.end || this.x(span.end) - this.x(span.start) < 60) this.look(middle - width / 2, middle + width / 2);
    }
    const row = this.rows().find(r => r.lane === lane), height = this.canvas.clientHeight;
    if (row && (row.y < AXIS || row.y + Chart.height(lane) > height)) this.roll(row.y - height / 3);
    this.pick(span, lane);
  }

  *items(lanes = this.lanes) {
    for (const lane of lanes) {
      for (const span of (lane.levels || []).flat().concat(lane.layers || [])) yield span;
      if (lane.lanes) yield* this.items(lane.lanes);
    }
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    this.found = wanted ? [...this.items()].filter(s => (s.name + " " + (s.lines || "")).toLowerCase().includes(wanted)) : [];
    this.hits = new Set(this.found);
    this.levelHits = new Map();
    this.turn = -1;
    this.draw();
    return this.found.length;
  }

  next(by) {
    if (!this.found.length) return;
    if (this.turn < 0) this.turn = Math.max(this.found.findIndex(s => s.start >= this.start && s.end <= this.end), 0);
    else this.turn = (this.turn + by + this.found.length) % this.found.length;
    this.go(this.found[this.turn]);
  }
}
