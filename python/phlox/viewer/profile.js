// SPDX-License-Identifier: Apache-2.0
// A profile: a timeline of streams, ranges, memory and host threads, and flame graphs of lines and
// ops. The data: spans [name, start, duration, thread or stream, id of the op, kind, device or -1,
// stack] in nanoseconds; memory [time, device, bytes]; texts, to which names, kinds and stacks are
// indices.
"use strict";

const COLORS = {kernel: "#4269d0", copy: "#efb118", collective: "#3ca951", other: "#9c6b4e", op: "#97bbf5", range: "#c9ced6", line: "#8a9bb0", memory: "#a463f2"};

// Sets depths of nested spans and their enclosing spans; returns spans by depth.
function nest(spans) {
  const levels = [], open = [];
  spans.sort((a, b) => a.start - b.start || b.end - a.end || a.id - b.id);
  for (const span of spans) {
    while (open.length && open[open.length - 1].end <= span.start) open.pop();
    span.parent = open[open.length - 1] || null;
    (levels[open.length] ||= []).push(span);
    open.push(span);
  }
  return levels;
}

function readSpans(data) {
  const spans = [], devices = new Map(), threads = new Map(), ops = new Map();
  const levels = new Map(), memory = [];  // the sum of all devices: an op is counted for one of its devices
  let total = 0;
  for (const [time, device, bytes] of data.memory) {
    total += bytes - (levels.get(device) || 0);
    levels.set(device, bytes);
    memory.push([time, total]);
  }
  const stacks = data.texts.map(text => text.split(";").filter(frame => frame && !frame.startsWith("<frozen ")));
  const lines = stacks.map(frames => frames.join("\n")), kinds = {cpu_op: "op", user_annotation: "range"};
  for (const [name, start, took, track, id, type, device, stack] of data.spans) {
    const work = device >= 0, kind = kinds[data.texts[type]] || data.texts[type];
    const span = {name: data.texts[name], start, end: start + took, kind, color: COLORS[kind], thread: track, id, frames: stacks[stack], lines: lines[stack], work: []};
    if (work) Object.assign(span, {device, stream: track});
    else ops.set(id, span);
    const lanes = work ? devices : threads, key = work ? `cuda:${device} stream ${track}` : track;
    if (!lanes.has(key)) lanes.set(key, []);
    lanes.get(key).push(span);
    spans.push(span);
  }
  for (const span of spans) {
    if (span.device === undefined) continue;
    span.op = ops.get(span.id) || null;
    if (span.op) span.op.work.push(span);
  }
  return {spans, devices, threads, memory};
}

// Marks the chain from a device's last work back: each time the last unit to end before.
function markCritical(spans) {
  const all = [...spans].sort((a, b) => a.end - b.end || a.start - b.start);
  for (let i = all.length - 1; i >= 0;) {
    const unit = all[i];
    unit.critical = true;
    do i--; while (i >= 0 && all[i].end > unit.start);
  }
}

// Time with at least one of the spans running.
function busy(spans) {
  let total = 0, until = -Infinity;
  for (const s of [...spans].sort((a, b) => a.start - b.start)) {
    total += Math.max(0, s.end - Math.max(s.start, until));
    until = Math.max(until, s.end);
  }
  return total;
}

// Packs threads whose times do not overlap into common lanes.
function packThreads(threads) {
  const lanes = [];
  const all = [...threads.entries()].map(([thread, spans]) => ({thread, spans, start: spans.reduce((t, s) => Math.min(t, s.start), Infinity), end: spans.reduce((t, s) => Math.max(t, s.end), 0)}));
  for (const one of all.sort((a, b) => a.start - b.start)) {
    const free = lanes.find(lane => lane.end <= one.start);
    if (free) Object.assign(free, {end: one.end, threads: [...free.threads, one.thread], spans: free.spans.concat(one.spans)});
    else lanes.push({end: one.end, threads: [one.thread], spans: one.spans});
  }
  return lanes.map(({threads, spans}) => {
    const lane = {name: threads.length > 1 ? `${threads.length} threads in turn` : `thread ${threads[0]}`, levels: nest(spans)};
    for (const span of spans) span.lane = lane;
    return lane;
  });
}

// The number of threads with a running op, as a step curve.
function activity(lanes) {
  const changes = lanes.flatMap(lane => lane.levels[0] || []).flatMap(s => [[s.start, 1], [s.end, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let count = 0;
  return changes.map(([time, by]) => [time, count += by]);
}

function curveLane(name, points, color, note) {
  const peak = points.reduce((most, p) => Math.max(most, p[1]), 0);
  return {name, points, peak, color, note: note(peak)};
}

function timelineLanes({devices, threads, memory, spans}) {
  const lanes = [], groups = new Map();
  for (const [name, units] of [...devices].sort((a, b) => a[1][0].device - b[1][0].device || a[1][0].stream - b[1][0].stream)) {
    const lane = {name, levels: nest(units)};
    for (const unit of units) unit.lane = lane;
    lanes.push(lane);
    const {device} = units[0];
    groups.set(device, (groups.get(device) || []).concat(units));
  }
  for (const units of groups.values()) markCritical(units);
  const packed = packThreads(threads);
  if (memory.length) lanes.push(curveLane("device memory", memory, COLORS.memory, peak => `up to ${bytesText(peak)} more`));
  const ranges = spans.filter(s => s.kind === "range");
  if (ranges.length) {
    const lane = {name: "ranges"};
    const copies = ranges.map(s => ({...s, lane, of: s}));
    lane.levels = nest(copies);
    lanes.push(lane);
  }
  if (threads.size === 1) lanes.push(packed[0]);
  else if (packed.length) lanes.push({...curveLane("host", activity(packed), COLORS.op, most => `${threads.size} threads, ${most} at once`), lanes: packed, open: !devices.size});
  return {lanes, groups};
}

// ---- flame graphs

// Adds a time to the path of nodes from the root.
function grow(root, path, took, event) {
  let node = root;
  node.total += took;
  for (const step of path) {
    if (!node.inner.has(step.name)) node.inner.set(step.name, {...step, total: 0, self: 0, count: 0, inner: new Map(), event});
    node = node.inner.get(step.name);
    node.total += took;
    node.count++;
  }
  node.self += took;
}

// The lines and ops from the outermost to a span. Ranges are left out, except for their own time.
function pathOf(span) {
  const ops = [];
  let {frames} = span;
  for (let op = span; op && (op.kind !== "range" || op === span); op = op.device === undefined ? op.parent : op.op) {
    ops.unshift({name: op.kind === "range" ? op.name.replace(/#\d+$/, "") : op.name, color: op.color});
    if (op.frames.length) ({frames} = op);
  }
  return [...[...frames].reverse().map(frame => ({name: frame, color: COLORS.line, line: true})), ...ops];
}

function flameLane(spans, took) {
  const root = {name: "all", color: COLORS.range, total: 0, self: 0, count: 0, inner: new Map()};
  for (const span of spans) {
    const time = took(span);
    if (time > 0) grow(root, pathOf(span), time, span);
  }
  const lane = {name: "flame graph", note: "lines, ops, kernels", levels: []};
  const place = (node, depth, start, parent) => {
    const short = node.line ? node.name.replace(/^.*\//, "") : node.name;
    const bar = {name: short, full: node.name, color: node.color, start, end: start + node.total, node, lane, parent, lines: node.name};
    (lane.levels[depth] ||= []).push(bar);
    for (const inner of [...node.inner.values()].sort((a, b) => b.total - a.total)) {
      place(inner, depth + 1, start, bar);
      start += inner.total;
    }
  };
  place(root, 0, 0, null);
  for (const level of lane.levels) level.sort((a, b) => a.start - b.start);
  return {lanes: [lane], total: root.total};
}

function selfTime(op) {
  return op.end - op.start - (op.inside || 0);
}

function flame(spans, took) {
  const {lanes, total} = flameLane(spans, took);
  return {lanes, start: 0, end: total || 1, text: timeText, tip: bar => `${bar.full}, ${timeText(bar.node.total)}`, select(bar) {
    if (!bar) return details([["", "Bars are as wide as their time: lines of the program above, then ops, then kernels. Click a bar for details."], ["", HELP]]);
    const {node} = bar, share = part => `${timeText(part)} (${(100 * part / total).toFixed(1)} %)`;
    return details([[node.line ? "line" : "name", bar.full], ["time", share(node.total)], ["without nested", share(node.self)], ["events", node.count.toLocaleString("en")],
                    ...(bar.parent ? [["within", {text: bar.parent.full, go: bar.parent}]] : [])]);
  }};
}

// ---- the page

function describe(span, spans) {
  if (!span) return details([["", "Click a bar for its time, op and source line; arrows lead from an op to its device work. Click the host lane to open its threads."], ["", HELP]]);
  if (span.of) span = span.of;
  const same = spans.filter(s => s.name === span.name && s.kind === span.kind);
  const rows = [["name", span.name], ["time", `${timeText(span.end - span.start)}, from ${timeText(span.start)}`],
                [span.device === undefined ? "thread" : "stream", span.device === undefined ? String(span.thread) : span.lane.name]];
  if (span.critical) rows.push(["", "on the critical path of its device"]);
  const frames = span.frames.length ? span.frames : (span.op && span.op.frames) || [];
  if (frames.length) rows.push(["source", frames.join("\n")]);
  if (span.op) rows.push(["issued by", {text: span.op.name, go: span.op}]);
  if (span.parent && span.device === undefined) rows.push(["within", {text: span.parent.name, go: span.parent}]);
  if (span.work.length) rows.push(["device work", span.work.slice(0, 12).map(w => ({text: `${w.name} ${timeText(w.end - w.start)}`, go: w}))]);
  const all = same.reduce((sum, s) => sum + s.end - s.start, 0);
  rows.push(["same name", `${same.length.toLocaleString("en")} times, ${timeText(all)} in all, ${timeText(all / same.length)} on average`]);
  return details(rows);
}

function showProfile(data) {
  const read = readSpans(data), {spans} = read;
  const {lanes, groups} = timelineLanes(read);
  for (const span of spans) if (span.device === undefined && span.parent) span.parent.inside = (span.parent.inside || 0) + span.end - span.start;
  const start = spans.reduce((t, s) => Math.min(t, s.start), spans.length ? Infinity : 0), end = spans.reduce((t, s) => Math.max(t, s.end), 1);
  const legend = [["kernel", "kernels"], ["copy", "copies"], ["collective", "collectives"], ["other", "other work"], ["op", "ops"]];
  const kinds = new Set(spans.map(s => s.kind));
  summary([`${timeText(end - start)} from first to last`, ...[...groups].map(([device, units]) => `cuda:${device} busy ${(100 * busy(units) / (end - start || 1)).toFixed(0)} %`),
           ...legend.filter(([kind]) => kinds.has(kind)).map(([kind, text]) => ({text, color: COLORS[kind]})), ...(groups.size ? [{text: "critical path", color: "var(--pick)"}] : [])]);
  const arrows = span => !span ? [] : span.op ? [{from: span.op, to: span}] : (span.work || []).map(work => ({from: span, to: work}));
  const views = {Timeline: {lanes, start, end, text: timeText, arrows, select: span => describe(span, spans), tip: s => `${s.name}, ${timeText(s.end - s.start)}`}};
  const work = spans.filter(s => s.device !== undefined), host = spans.filter(s => s.device === undefined);
  if (work.length) views["Flame: device time"] = flame(work, s => s.end - s.start);
  if (host.length) views["Flame: host time"] = flame(host, selfTime);
  show(views);
}
