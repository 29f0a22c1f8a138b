// SPDX-License-Identifier: Apache-2.0
// A snapshot of device memory: live bytes by owner over the events, and the blocks of segments.
// The data: devices, rows of events [action, address, size, stream, microseconds, stack]; segments
// {device, stream, size, address, blocks: [address, size, state, stack]}; stacks of
// [file, line, function], the innermost first. An owner is the op and the line of an allocation.
"use strict";

const PALETTE = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#1f77b4", "#bcbd22", "#17becf", "#d62728", "#8c564b", "#e377c2"];
const OTHERS = "#9aa3ad", FREE = "#b4bcc5", BEFORE = "before the history", SIGNS = {segment_alloc: 1, segment_map: 1, segment_free: -1, segment_unmap: -1};

function ownerOf(stack) {
  if (!stack || !stack.length) return "no stack recorded";
  const line = stack.find(([file, number]) => number && !/[/](phlox|torch)[/]/.test(file) && !file.startsWith("<frozen "));
  return stack[0][2] + (line ? `  ${line[0].replace(/^.*\//, "")}:${line[1]}` : "");
}

// Lists changes [owner, bytes] of live memory, one for each event. Memory allocated before the first
// event is live at the end, or freed by an event, without an event for its allocation.
function readEvents(events, blocks, stacks) {
  const slots = new Map();
  for (const [address, size, state] of blocks) if (state === "active_allocated") slots.set(address, [BEFORE, size]);
  for (let i = events.length - 1; i >= 0; i--) {
    const [action, address, size] = events[i];
    if (action === "free_requested") slots.set(address, [BEFORE, size]);
    else if (action === "alloc") slots.delete(address);
  }
  const older = [...slots.values()].reduce((sum, slot) => sum + slot[1], 0);
  const changes = events.map(([action, address, size, , , stack]) => {
    if (action === "alloc") {
      slots.set(address, [ownerOf(stacks[stack]), size]);
      return slots.get(address);
    }
    if (action !== "free_requested" || !slots.has(address)) return null;
    const [owner, bytes] = slots.get(address);
    slots.delete(address);
    return [owner, -bytes];
  });
  return {older, changes};
}

// Owners by bytes at the time of most live memory.
function rankOwners(older, changes) {
  const live = new Map([[BEFORE, older]]), most = new Map([[BEFORE, older]]);
  let total = older, peak = older, atPeak = new Map(live), peakEvent = 0;
  changes.forEach((change, i) => {
    if (!change) return;
    const [owner, bytes] = change;
    live.set(owner, (live.get(owner) || 0) + bytes);
    most.set(owner, Math.max(most.get(owner) || 0, live.get(owner)));
    total += bytes;
    if (total > peak) {
      peak = total;
      peakEvent = i;
      atPeak = new Map(live);
    }
  });
  const owners = [...most.keys()].filter(owner => most.get(owner) > 0);
  owners.sort((a, b) => (atPeak.get(b) || 0) - (atPeak.get(a) || 0) || most.get(b) - most.get(a));
  return {owners, peak, peakEvent};
}

// A lane of stacked areas: the first owners, then the others as one.
function usageLane(device, events, segments, stacks, count, colors) {
  const blocks = segments.flatMap(s => s.blocks), {older, changes} = readEvents(events, blocks, stacks);
  const {owners, peak, peakEvent} = rankOwners(older, changes), shown = owners.slice(0, count);
  const lane = {device, name: `cuda:${device}`, note: `peak ${bytesText(peak)}`, xs: events.map((_, i) => i), events, peakEvent, owners, changes, older};
  for (const name of shown) if (!colors.has(name)) colors.set(name, PALETTE[colors.size % PALETTE.length]);
  const layers = new Map(shown.map(name => [name, {name, lane, color: colors.get(name), values: new Float64Array(events.length)}]));
  if (owners.length > count) layers.set(null, {name: `${owners.length - count} other owners`, lane, color: OTHERS, values: new Float64Array(events.length)});
  const live = new Map([...layers.values()].map(layer => [layer, 0]));
  const of = owner => layers.get(owner) || layers.get(null);
  if (older) live.set(of(BEFORE), older);
  let reserved = segments.reduce((sum, s) => sum + s.size, 0) - events.reduce((sum, e) => sum + (SIGNS[e[0]] || 0) * e[2], 0);
  lane.sums = new Float64Array(events.length);
  lane.outline = new Float64Array(events.length);
  events.forEach((event, i) => {
    const change = changes[i];
    if (change) live.set(of(change[0]), live.get(of(change[0])) + change[1]);
    for (const [layer, bytes] of live) lane.sums[i] += layer.values[i] = bytes;
    lane.outline[i] = reserved += (SIGNS[event[0]] || 0) * event[2];
  });
  lane.layers = [...layers.values()];
  lane.peak = 1.05 * Math.max(peak, lane.outline.reduce((most, bytes) => Math.max(most, bytes), 0), 1);
  return lane;
}

// Live bytes of every owner after an event.
function liveAt(lane, index) {
  const live = new Map(lane.older ? [[BEFORE, lane.older]] : []);
  for (let i = 0; i <= index; i++) if (lane.changes[i]) live.set(lane.changes[i][0], (live.get(lane.changes[i][0]) || 0) + lane.changes[i][1]);
  return [...live].filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]);
}

function stackText(stack) {
  return (stack || []).map(([file, line, name]) => line ? `${file}:${line} ${name}` : name).join("\n");
}

function describeEvent(lane, index, layer, stacks) {
  const [action, address, size, stream, time, stack] = lane.events[index], since = (time - lane.events[0][4]) * 1000;
  const rows = [["event", `${index}: ${action.replaceAll("_", " ")} of ${bytesText(size)} at 0x${address.toString(16)}, stream ${stream}, ${timeText(since)} after the first`],
                ["live", `${bytesText(lane.sums[index])} of ${bytesText(lane.outline[index])} reserved`]];
  if (layer) rows.push(["owner", `${layer.name}, ${bytesText(layer.values[index])}`]);
  rows.push(["owners", liveAt(lane, index).map(([owner, bytes]) => `${bytesText(bytes).padStart(11)}  ${owner}`).join("\n")]);
  if (stack !== null) rows.push(["stack", stackText(stacks[stack])]);
  return details(rows);
}

function segmentLanes(segments, stacks, colors) {
  return segments.map((segment, number) => {
    const lane = {name: `cuda:${segment.device} segment ${number}`, note: `${bytesText(segment.size)}, stream ${segment.stream}`};
    lane.levels = [segment.blocks.map(([address, size, state, stack]) => {
      const owner = ownerOf(stacks[stack]), start = address - segment.address, free = state === "inactive";
      return {name: free ? "free" : owner, owner, start, end: start + size, color: free ? FREE : colors.get(owner) || OTHERS, lane, state, stack, size, address};
    })];
    lane.height = 30;
    return lane;
  });
}

function binaryStep(rough) {
  return 2 ** Math.ceil(Math.log2(Math.max(rough, 1)));
}

function showMemory(data) {
  const {stacks, segments} = data, devices = data.devices.map((events, device) => ({device, events}));
  const colors = new Map();  // of owners, for all devices
  const usage = devices.filter(d => d.events.length).map(({device, events}) => usageLane(device, events, segments.filter(s => s.device === device), stacks, data.owners, colors));
  const views = {}, count = Math.max(1, ...usage.map(lane => lane.xs.length));
  if (usage.length)
    views["Live memory"] = {lanes: usage, start: 0, end: count, text: (at, step) => (step ? "event " : "") + Math.round(at).toLocaleString("en") + (step ? "" : " events"),
      step: rough => Math.max(1, decimalStep(rough)), tip: (layer, lane, index) => `${layer.name}, ${bytesText(layer.values[index])}`,
      select: (layer, lane, index) => lane && lane.layers ? describeEvent(lane, index ?? lane.peakEvent, layer, stacks)
        : details([["", "Each area is the live memory of an owner: an op and a line of the program. The line above is reserved memory. Click to see who owns what after that event."], ["", HELP]])};
  const lanes = segmentLanes(segments, stacks, colors), size = segments.reduce((most, s) => Math.max(most, s.size), 1);
  views.Segments = {lanes, start: 0, end: size, text: bytesText, step: binaryStep, tip: block => `${block.name}, ${bytesText(block.size)}`, select(block) {
    if (!block) return details([["", "Blocks of each segment at the time of the snapshot, with the colours of their owners. Click a block for its stack."], ["", HELP]]);
    return details([["block", `${bytesText(block.size)} at 0x${block.address.toString(16)}, offset ${bytesText(block.start)}`], ["state", block.state.replaceAll("_", " ")],
                    ["owner", block.owner], ["stack", stackText(stacks[block.stack])]]);
  }};
  const reserved = segments.reduce((sum, s) => sum + s.size, 0);
  summary([`${bytesText(reserved)} reserved in ${segments.length} segments`, ...[...colors].map(([text, color]) => ({text, color})), {text: "other owners", color: OTHERS}]);
  show(views);
}
